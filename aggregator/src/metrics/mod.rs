//! A snapshot of the owner and the state of the watches enter; OpenMetrics text leaves.
//!
//! Every scrape builds all series anew, so those of a Service, pod or node that is gone are gone too. Counters of
//! endpoints are those of the agent's epoch: they start at zero when the kernel's do, and a restart of the aggregator
//! does not move them.

mod clients;
mod evidence;
mod labels;
mod nodes;
mod services;

#[cfg(test)]
mod tests;

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::cluster::SyncStatus;
use crate::state::Snapshot;

/// Media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders all metrics.
///
/// # Errors
/// Only when formatting fails.
pub fn render(snapshot: &Snapshot, sync: &SyncStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    if let Some(figures) = &snapshot.figures {
        services::register(&mut registry, figures);
    }
    nodes::register(&mut registry, snapshot, sync);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
