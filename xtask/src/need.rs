//! What each command needs, and what is missing of it. In: the kinds of needs of a command. Out: a list of [`Item`]s,
//! each found or missing.

use std::path::PathBuf;
use std::process::Command;

use crate::shell;
use crate::toolchain::{self, Compiler, Linker};
use crate::workspace::Workspace;

/// A reason to need programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Building the eBPF object.
    Ebpf,
    /// The network of the lab.
    Lab,
    /// Checking what deploy/ holds.
    Deploy,
    /// Testing other kernels in virtual machines.
    Vm,
    /// The checks of the whole source that only CI makes.
    Ci,
    /// Tools of others that benchmarks compare with. Those that are missing are not compared with.
    Peers,
}

/// A thing that is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// A compiler with `core` for BPF.
    Compiler,
    /// A bpf-linker for the compiler's LLVM, whose major version is known once there is a compiler.
    Linker(Option<u32>),
    /// A program of a Debian package.
    Program(Program),
    /// Prometheus' checker of rules.
    Promtool,
    /// The checker of licences, bans and advisories.
    CargoDeny,
    /// A component of the Rust toolchain that cargo runs as a subcommand.
    Component(&'static str),
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Compiler => f.write_str("compiler with core for BPF"),
            Self::Linker(_) => f.write_str("bpf-linker"),
            Self::Program(program) => f.write_str(program.name),
            Self::Promtool => f.write_str("promtool"),
            Self::CargoDeny => f.write_str("cargo-deny"),
            Self::Component(name) => write!(f, "cargo {name}"),
        }
    }
}

/// A program, the Debian package that has it, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Name of the executable.
    pub name: &'static str,
    /// Debian package.
    pub package: &'static str,
    /// What uses it.
    pub why: &'static str,
}

/// What the lab runs.
const LAB_PROGRAMS: [Program; 6] = [
    Program {
        name: "ip",
        package: "iproute2",
        why: "the lab's network",
    },
    Program {
        name: "ss",
        package: "iproute2",
        why: "comparing counts with the kernel's own list of sockets",
    },
    Program {
        name: "iptables-restore",
        package: "iptables",
        why: "kube-proxy's rules in iptables mode",
    },
    Program {
        name: "nft",
        package: "nftables",
        why: "kube-proxy's rules in nftables mode",
    },
    Program {
        name: "unshare",
        package: "util-linux",
        why: "the lab's network namespaces",
    },
    Program {
        name: "setpriv",
        package: "util-linux",
        why: "ending the lab's processes together with it",
    },
];

/// What benchmarks compare with.
const PEERS: [Program; 3] = [
    Program {
        name: "tcplife",
        package: "libbpf-tools",
        why: "comparing with a tool that lists connections",
    },
    Program {
        name: "bpftrace",
        package: "bpftrace",
        why: "comparing with a script that counts connections",
    },
    Program {
        name: "conntrack",
        package: "conntrack",
        why: "comparing with the kernel's connection tracking",
    },
];

/// What runs virtual machines, what unpacks kernels and packs file systems for them, and what runs inside.
const VM_PROGRAMS: [Program; 7] = [
    Program {
        name: "qemu-system-x86_64",
        package: "qemu-system-x86",
        why: "running other kernels",
    },
    Program {
        name: "dpkg-deb",
        package: "dpkg",
        why: "unpacking kernels",
    },
    Program {
        name: "xz",
        package: "xz-utils",
        why: "unpacking modules of kernels",
    },
    Program {
        name: "depmod",
        package: "kmod",
        why: "selecting modules of kernels",
    },
    Program {
        name: "cpio",
        package: "cpio",
        why: "the file systems of virtual machines",
    },
    Program {
        name: "mount",
        package: "mount",
        why: "what tests in virtual machines mount",
    },
    Program {
        name: "ipvsadm",
        package: "ipvsadm",
        why: "tests of kube-proxy's IPVS mode in virtual machines",
    },
];

/// A need, and where it was found.
#[derive(Debug, Clone)]
pub struct Item {
    /// What is needed.
    pub need: Need,
    /// Where it is, for people; nothing when it is missing.
    pub found: Option<String>,
}

/// What builds the eBPF object.
#[derive(Debug, Clone)]
pub struct EbpfTools {
    /// The compiler.
    pub compiler: Compiler,
    /// The linker.
    pub linker: Linker,
}

/// All that was looked for, and the tools for the eBPF object if they were among it and are complete.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// One item a need.
    pub items: Vec<Item>,
    /// What builds the eBPF object.
    pub ebpf: Option<EbpfTools>,
}

impl Survey {
    /// Looks for everything that the purposes need.
    pub fn take(workspace: &Workspace, purposes: &[Purpose]) -> Self {
        let mut survey = Self::default();
        if purposes.contains(&Purpose::Ebpf) {
            survey.look_for_ebpf_tools(workspace);
        }
        let programs: [(Purpose, &[Program]); 2] = [(Purpose::Lab, &LAB_PROGRAMS), (Purpose::Peers, &PEERS)];
        for (_, programs) in programs.iter().filter(|(purpose, _)| purposes.contains(purpose)) {
            for &program in *programs {
                survey.add(Need::Program(program), shell::find_program(program.name));
            }
        }
        if purposes.contains(&Purpose::Vm) {
            for program in VM_PROGRAMS {
                survey.add(Need::Program(program), shell::find_program(program.name));
            }
        }
        if purposes.contains(&Purpose::Deploy) {
            survey.add(Need::Promtool, promtool(workspace));
        }
        if purposes.contains(&Purpose::Ci) {
            survey.add(Need::CargoDeny, cargo_deny(workspace));
            for component in ["fmt", "clippy"] {
                let version = shell::capture(Command::new(&workspace.cargo).args([component, "--version"]));
                let found = version.map(|version| version.trim().to_owned());
                survey.items.push(Item {
                    need: Need::Component(component),
                    found,
                });
            }
        }
        survey
    }

    /// What is not there.
    pub fn missing(&self) -> Vec<Need> {
        self.items
            .iter()
            .filter(|item| item.found.is_none())
            .map(|item| item.need.clone())
            .collect()
    }

    fn add(&mut self, need: Need, found: Option<PathBuf>) {
        self.items.push(Item {
            need,
            found: found.map(|path| path.display().to_string()),
        });
    }

    /// Prefers the first compiler that has a linker; without any, the first compiler.
    fn look_for_ebpf_tools(&mut self, workspace: &Workspace) {
        let compilers = toolchain::compilers(workspace);
        let linkers = toolchain::linkers(workspace);
        let linker_of = |compiler: &Compiler| linkers.iter().find(|linker| linker.reads(compiler)).cloned();
        let complete = compilers.iter().find_map(|compiler| {
            let linker = linker_of(compiler)?;
            Some(EbpfTools {
                compiler: compiler.clone(),
                linker,
            })
        });
        let compiler = complete.as_ref().map(|tools| &tools.compiler).or(compilers.first());
        self.items.push(Item {
            need: Need::Compiler,
            found: compiler.map(|compiler| format!("{} (LLVM {})", compiler.rustc.display(), compiler.version.llvm)),
        });
        self.items.push(Item {
            need: Need::Linker(compiler.map(|compiler| compiler.version.llvm)),
            found: complete
                .as_ref()
                .map(|tools| format!("{} (LLVM {})", tools.linker.path.display(), tools.linker.llvm)),
        });
        self.ebpf = complete;
    }
}

/// Where promtool is: installed, or taken out of its package into the tool folder.
pub fn promtool(workspace: &Workspace) -> Option<PathBuf> {
    Some(workspace.tool("promtool"))
        .filter(|path| shell::is_executable(path))
        .or_else(|| shell::find_program("promtool"))
}

/// Where cargo-deny is.
fn cargo_deny(workspace: &Workspace) -> Option<PathBuf> {
    Some(workspace.tool("cargo-deny"))
        .filter(|path| shell::is_executable(path))
        .or_else(|| shell::find_program("cargo-deny"))
}
