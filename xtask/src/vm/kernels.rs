//! The kernels that are tested. In: nothing. Out: a table of Debian's releases, each with the kernel series that it ships.

/// The package that depends on the newest kernel of a release, in the build for virtual machines.
pub const PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel series, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// The name of a column: the series, or `newest`.
    pub name: &'static str,
    /// Debian's suite.
    pub suite: &'static str,
    /// True where the suite has a suite of security updates beside it, which has the newer kernel.
    pub security: bool,
}

/// Oldest first.
pub const ALL: [Kernel; 4] = [
    Kernel {
        name: "5.10",
        suite: "bullseye",
        security: true,
    },
    Kernel {
        name: "6.1",
        suite: "bookworm",
        security: true,
    },
    Kernel {
        name: "6.12",
        suite: "trixie",
        security: true,
    },
    Kernel {
        name: "newest",
        suite: "sid",
        security: false,
    },
];

/// The kernels of these names, all of them if none is named. Names are those of [`ALL`], which the command line checks.
pub fn named(names: &[String]) -> Vec<Kernel> {
    ALL.into_iter()
        .filter(|kernel| names.is_empty() || names.iter().any(|name| name == kernel.name))
        .collect()
}

/// All names, for the command line.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|kernel| kernel.name).collect()
}
