//! What the agent cannot do on its node: in, an error; out, a code for programs and a sentence for people.

use std::fmt::Display;

/// The first line of an error: the kernel's verifier says more than a sentence can hold.
pub fn brief(error: &dyn Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Something that the agent cannot do here, with what that means for the figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    /// Stable, for programs.
    pub code: &'static str,
    /// One or two sentences: what is missing, and why.
    pub sentence: String,
}
