//! Nodes, Pods, Services and EndpointSlices of the API server enter; a [`ClusterView`] of plain types leaves, each time
//! it has changed. No other module knows a Kubernetes type.
//!
//! Nothing leaves before all four watches have listed once: half a view would name the wrong endpoints and classes. A
//! watch that breaks keeps what it knew until the server has answered again.

mod connect;
mod derive;
mod explain;
mod facts;
mod status;
mod view;
mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub use connect::{ConnectError, Connection, connect};
pub use status::{SyncStatus, WatchState};
pub use view::{ClusterView, Endpoint, ObjectName, PortName, ServiceAddresses, ServicePort, ServiceView};

use derive::Objects;

/// Changes that arrive within this time of each other make one view.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// A cluster that never rests still gets a view this often.
const DEBOUNCE_LIMIT: Duration = Duration::from_secs(1);
const QUEUE: usize = 1024;

/// Watches the cluster and hands each new view to `deliver`, until `deliver` says that nobody listens any more.
///
/// `deliver` completes when the view is in use. `status` tells at any time which watch has synced, what is wrong with the
/// others, and whether a view is in use.
pub async fn run<F>(connection: Connection, status: status::Reporter, mut deliver: impl FnMut(ClusterView) -> F)
where
    F: Future<Output = bool>,
{
    let (sender, mut changes) = mpsc::channel(QUEUE);
    let client = connection.client;
    // Dropped, and so stopped, with this future.
    let mut watches = JoinSet::new();
    watches.spawn(watch::run::<Node>(
        Api::all(client.clone()),
        sender.clone(),
        status.clone(),
    ));
    watches.spawn(watch::run::<Pod>(
        Api::all(client.clone()),
        sender.clone(),
        status.clone(),
    ));
    watches.spawn(watch::run::<Service>(
        Api::all(client.clone()),
        sender.clone(),
        status.clone(),
    ));
    watches.spawn(watch::run::<EndpointSlice>(Api::all(client), sender, status.clone()));
    let mut objects = Objects::default();
    loop {
        // A watch that ends by itself would leave its part of the view as it is for ever.
        let change = tokio::select! {
            change = changes.recv() => change,
            _ended = watches.join_next() => None,
        };
        let Some(change) = change else { break };
        if !objects.apply(change) {
            continue;
        }
        let limit = Instant::now() + DEBOUNCE_LIMIT;
        let mut quiet = Instant::now() + DEBOUNCE;
        loop {
            tokio::select! {
                biased;
                () = sleep_until(quiet.min(limit)) => break,
                change = changes.recv() => match change {
                    Some(change) => {
                        if objects.apply(change) {
                            quiet = Instant::now() + DEBOUNCE;
                        }
                    }
                    None => break,
                },
            }
        }
        if let Some(view) = objects.view() {
            if !deliver(view).await {
                break;
            }
            status.delivered();
        }
    }
}

/// A status that nothing has synced into yet, for [`run`], and its receiving end.
pub fn status(url: &str) -> (status::Reporter, tokio::sync::watch::Receiver<SyncStatus>) {
    status::channel(
        url,
        [
            watch::resource::<Node>(),
            watch::resource::<Pod>(),
            watch::resource::<Service>(),
            watch::resource::<EndpointSlice>(),
        ],
    )
}
