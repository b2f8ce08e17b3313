//! Skew of new flows over other windows. Their counts enter; the figures of each leave, in the same order.

use super::ServiceInput;
use super::design::Design;
use super::shares::Split;
use super::significance::skew;
use crate::report::{FlowKind, WindowSkew};

/// The skew of each window of the input. `design` is that of `flows` flows of the window that is analysed.
pub(super) fn windows(input: &ServiceInput, design: &Design, flows: u64, testable: bool) -> Vec<WindowSkew> {
    let skew = |window: &super::WindowInput| {
        let split = Split::of_counts(input, FlowKind::New, window.new.clone());
        skew(&split, design.scaled(flows, split.flows).whole, testable)
    };
    let windows = input.windows.iter().map(|window| WindowSkew {
        seconds: window.seconds,
        window: window.window,
        new: skew(window),
    });
    windows.collect()
}
