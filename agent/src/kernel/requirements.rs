//! What the agent needs from the kernel and from its own process: in, the running system; out, a list of what is there and
//! what is missing, each with a remedy.

use std::{fs, path::Path};

use super::{object, offsets::BTF_PATH};

/// The oldest kernel that has all that the programs use.
const MINIMUM_KERNEL: (u32, u32) = (5, 10);
/// Bits of the capability set, from `linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
/// Inode of the first pid namespace, a constant of the kernel.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// One thing that the agent needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// What it is.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
}

/// How a requirement stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is there: what was found.
    Met(String),
    /// The agent works without, but something is less: what, and the remedy.
    Degraded(String),
    /// The agent cannot work: what is missing, and the remedy.
    Missing(String),
}

/// Looks at everything the agent needs.
pub fn all() -> Vec<Requirement> {
    vec![
        Requirement {
            name: "eBPF object",
            state: ebpf_object(),
        },
        Requirement {
            name: "kernel version",
            state: kernel_is_new_enough(),
        },
        Requirement {
            name: "kernel type information (BTF)",
            state: btf(),
        },
        Requirement {
            name: "capabilities",
            state: capabilities(),
        },
        Requirement {
            name: "host pid namespace",
            state: pid_namespace(),
        },
    ]
}

/// The release of the running kernel, such as `6.1.0-18-cloud-amd64`; "unknown" when /proc is not mounted.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn ebpf_object() -> State {
    match object::embedded() {
        Ok(object) => State::Met(format!("{} bytes, built in", object.len())),
        Err(error) => State::Missing(error.to_string()),
    }
}

/// Major and minor version of the running kernel; `None` when its release cannot be read.
pub fn kernel_version() -> Option<(u32, u32)> {
    parse_release(&kernel_release())
}

fn kernel_is_new_enough() -> State {
    let release = kernel_release();
    let (major, minor) = MINIMUM_KERNEL;
    match parse_release(&release) {
        Some(version) if version >= MINIMUM_KERNEL => State::Met(release),
        Some(_) => State::Missing(format!(
            "Linux {release} is too old: {major}.{minor} or newer is needed"
        )),
        None => State::Degraded(format!(
            "cannot tell the kernel's version from '{release}'; {major}.{minor} is needed"
        )),
    }
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn btf() -> State {
    if Path::new(BTF_PATH).exists() {
        State::Met(BTF_PATH.to_owned())
    } else if !Path::new("/sys/kernel").exists() {
        State::Missing("/sys is not mounted: mount -t sysfs sysfs /sys".to_owned())
    } else {
        State::Missing(format!(
            "{BTF_PATH} is not there: this kernel was built without CONFIG_DEBUG_INFO_BTF; use a kernel that has it (those of \
             the common distributions do)"
        ))
    }
}

fn capabilities() -> State {
    let effective = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| effective_capabilities(&status));
    match effective {
        Some(set) if has(set, CAP_SYS_ADMIN) || (has(set, CAP_BPF) && has(set, CAP_PERFMON)) => {
            State::Met(format!("{set:#x}"))
        }
        Some(set) => {
            let missing: Vec<_> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
                .into_iter()
                .filter(|&(capability, _)| !has(set, capability))
                .map(|(_, name)| name)
                .collect();
            State::Missing(format!(
                "{} missing: run as root, or grant these capabilities",
                missing.join(" and ")
            ))
        }
        None => State::Degraded("cannot read /proc/self/status: mount -t proc proc /proc".to_owned()),
    }
}

fn has(set: u64, capability: u32) -> bool {
    set >> capability & 1 == 1
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Whether this process sees those of the whole node.
pub fn pid_namespace() -> State {
    match fs::read_link("/proc/self/ns/pid") {
        Ok(link) if link.as_os_str() == INITIAL_PID_NAMESPACE => State::Met("yes".to_owned()),
        Ok(_) => State::Degraded(
            "no: flows of other processes that are open at start are not found; set hostPID: true in the pod"
                .to_owned(),
        ),
        Err(error) => State::Degraded(format!("cannot read /proc/self/ns/pid: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        for (release, expected) in [
            ("6.1.0-18-cloud-amd64", Some((6, 1))),
            ("5.10.209", Some((5, 10))),
            ("6.18.44-fc-v782", Some((6, 18))),
            ("7.2", Some((7, 2))),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(parse_release(release), expected, "{release}");
        }
    }

    #[test]
    fn capability_sets() {
        let status = "Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t0\n";
        let set = effective_capabilities(status).expect("a set");
        assert!(has(set, CAP_BPF) && has(set, CAP_PERFMON) && !has(set, CAP_SYS_ADMIN));
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
        assert_eq!(effective_capabilities("CapEff:\tzz\n"), None);
    }
}
