//! A pod's listeners: in, a process of the pod; out, what its network namespace has dropped, and whether that is the node's.

use std::{
    fs,
    io::{self, BufRead},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::is_gone;

/// The node's network namespace, to compare others with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeNetwork {
    /// Inode of a file that `/proc` shows to processes of this namespace only. Any process may look at that.
    Netstat(u64),
    /// Inode of the namespace. Whoever looks at that of another process needs the right to trace it.
    Namespace(u64),
}

impl NodeNetwork {
    /// The namespace that a file names, such as `/proc/1/ns/net` or `/run/netns/NAME`.
    ///
    /// # Errors
    /// There is no such file, or no right to look at it.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        if path.ends_with("ns/net")
            && let Some(process) = path.ancestors().nth(2)
            && let Ok(file) = fs::metadata(netstat(process))
        {
            return Ok(Self::Netstat(file.ino()));
        }
        Ok(Self::Namespace(fs::metadata(path)?.ino()))
    }

    /// Whether a process is in it.
    ///
    /// # Errors
    /// The process has ended, or there is no right to look.
    pub(super) fn has(self, pid: u32) -> io::Result<bool> {
        let process = process(pid);
        Ok(match self {
            Self::Netstat(node) => fs::metadata(netstat(&process))?.ino() == node,
            Self::Namespace(node) => fs::metadata(process.join("ns/net"))?.ino() == node,
        })
    }
}

/// What happened at the listeners of a network namespace, since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Listeners {
    /// Connections that found an accept queue full.
    pub(super) overflows: Option<u64>,
    /// Connections dropped for any reason.
    pub(super) drops: Option<u64>,
    /// SYN cookies sent.
    pub(super) cookies: Option<u64>,
}

impl Listeners {
    /// Those of the namespace of a process.
    ///
    /// # Errors
    /// The process has ended, or its files cannot be read.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        fs::read_to_string(netstat(&process(pid))).map(|text| Self::parse(&text))
    }

    /// From a line of names and a line of values, both of which begin with `TcpExt:`.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let value = |name| {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|&(found, _)| found == name)?.1.parse().ok()
        };
        Self {
            overflows: value("ListenOverflows"),
            drops: value("ListenDrops"),
            cookies: value("SyncookiesSent"),
        }
    }
}

/// The process that a cgroup lists first, which is nearly always its oldest. 0 for one that this process cannot see.
///
/// # Errors
/// The list is there and cannot be read.
pub(super) fn first_process(cgroup: &Path) -> io::Result<Option<u32>> {
    let read = || {
        let mut line = String::new();
        io::BufReader::new(fs::File::open(cgroup.join("cgroup.procs"))?).read_line(&mut line)?;
        Ok(line.trim().parse().ok())
    };
    match read() {
        // A part of a process has a cgroup of its own: the process is listed above.
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::Unsupported => Ok(None),
        result => result,
    }
}

fn process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn netstat(process: &Path) -> PathBuf {
    process.join("net/netstat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        let text = "TcpExt: SyncookiesSent SyncookiesRecv ListenOverflows ListenDrops TCPHPHits\nTcpExt: 3 0 17 19 5\n\
                    IpExt: InNoRoutes ListenDrops\nIpExt: 8 9\n";
        let expected = Listeners {
            overflows: Some(17),
            drops: Some(19),
            cookies: Some(3),
        };
        assert_eq!(Listeners::parse(text), expected);
        for text in [
            "",
            "IpExt: ListenDrops\nIpExt: 9\n",
            "TcpExt: ListenDrops\n",
            "TcpExt: ListenDrops\nTcpExt: many\n",
        ] {
            assert_eq!(Listeners::parse(text), Listeners::default(), "{text:?}");
        }
    }

    #[test]
    fn a_namespace_is_known_by_both_of_its_names() {
        let own = std::process::id();
        for path in ["/proc/self/ns/net".to_owned(), format!("/proc/{own}/ns/net")] {
            let node = NodeNetwork::at(Path::new(&path)).expect("a namespace");
            assert!(matches!(node, NodeNetwork::Netstat(_)), "{path}");
            assert!(node.has(own).expect("looked at"), "{path}");
        }
        let by_inode = NodeNetwork::Namespace(fs::metadata("/proc/self/ns/net").expect("there").ino());
        assert!(by_inode.has(own).expect("looked at"));
        assert!(NodeNetwork::at(Path::new("/run/netns/no-such-name")).is_err());
        // The last id that a process can have is 2^22 - 1.
        assert!(is_gone(&by_inode.has(1 << 23).expect_err("no process")));
    }
}
