//! What is known not to work on some kernels, or in no virtual machine. In: nothing. Out: tables of tests that may fail, and of
//! tests that are not run, each with the reason, which the published table shows.

/// A test that is known to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limitation {
    /// Names of the kernels, as in [`super::kernels::ALL`].
    pub kernels: &'static [&'static str],
    /// PROGRAM::TEST.
    pub test: &'static str,
    /// What does not work there, and why.
    pub reason: &'static str,
}

/// All that is known.
pub const ALL: &[Limitation] = &[];

/// Tests that are not run in virtual machines, and why.
const NOT_RUN: [(&str, &str); 2] = [
    (
        "doors::a_look_up_is_quick",
        "it measures time, of which an emulated processor tells nothing",
    ),
    (
        "doors::above_the_limit_the_coverage_adds_up",
        "it counts on being quick, which an emulated processor is not",
    ),
];

/// Why a test is not run; nothing for one that is.
pub fn not_run(test: &str) -> Option<&'static str> {
    NOT_RUN
        .iter()
        .find(|(name, _)| *name == test)
        .map(|(_, reason)| *reason)
}

/// The limitation of a test on a kernel.
pub fn find(limitations: &[Limitation], kernel: &str, test: &str) -> Option<Limitation> {
    limitations
        .iter()
        .find(|limitation| limitation.test == test && limitation.kernels.contains(&kernel))
        .copied()
}
