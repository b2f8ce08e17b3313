//! The agent: loads the kernel programs, reads their counters and reports them to the aggregator.
//!
//! A connection's way through this crate: the kernel counts it ([`kernel`]), a [`kernel::Snapshot`] of the counters becomes
//! a [`report`], which goes [`upstream`]; the [`assignment`] comes back. [`run`] owns all of it.
#![forbid(unsafe_code)]

pub mod assignment;
pub mod check;
pub mod cleanup;
pub mod config;
pub mod convert;
pub mod events;
pub mod http;
pub mod kernel;
pub mod metrics;
pub mod report;
pub mod run;
pub mod top;
pub mod upstream;
