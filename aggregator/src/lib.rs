//! The aggregator. What the agents count on each node, and what the API server says about the cluster, enter; skew
//! reports leave, as JSON, as metrics and as tables for people.
//!
//! The data's way through the modules:
//!
//! - [`cluster`]: the API server's objects become a [`cluster::ClusterView`]
//! - [`assignment`]: the view becomes what each agent is to watch
//! - [`ingest`]: agents' gRPC streams become plain reports; assignments and acknowledgements go back
//! - [`ledger`]: a node's cumulative counters become flows per bucket of time
//! - [`clients`]: single flows of clients, kept within a bound, become one sample of what clients did
//! - [`node`]: what an agent says of itself
//! - [`state`]: the one task that owns the view and the ledgers; figures leave
//! - [`analysis`]: figures become skew, verdict and findings (pure)
//! - [`view`]: figures and analysis become a [`report::ServiceReport`]
//! - [`api`], [`metrics`], [`cli`]: how reports are served and shown
#![forbid(unsafe_code)]

pub mod analysis;
pub mod api;
pub mod app;
pub mod assignment;
pub mod cli;
pub mod clients;
pub mod cluster;
pub mod config;
pub mod flow;
pub mod ingest;
pub mod ledger;
pub mod metrics;
pub mod node;
pub mod report;
pub mod state;
pub mod view;

use std::time::{Duration, SystemTime};

/// Now, in milliseconds since 1970 by this machine's clock.
pub fn now_ms() -> u64 {
    millis(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// A duration in whole milliseconds; what does not fit is `u64::MAX`.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
