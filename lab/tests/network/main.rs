//! The network on a real kernel: both proxy modes, both families. Needs root; without it each test says so and ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod affinity;
mod doors;
mod flows;
mod lifecycle;
mod pods;
mod services;
mod shares;
mod support;
mod udp;
