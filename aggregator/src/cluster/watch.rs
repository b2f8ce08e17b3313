//! One resource of the API server enters; its changes leave, reduced to the fields that are used.
//!
//! A list is handed on whole, when it is complete: what it lacks is gone. So a dropped watch, or a server that has
//! forgotten our place (410 Gone), shows as old objects for a moment, never as missing ones.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::derive::{Change, Update};
use super::explain::{explain, is_gone};
use super::status::Reporter;
use super::view::ObjectName;

const RELIST_PAUSE: Duration = Duration::from_millis(500);

/// A kind of object to watch, and what is kept of it.
pub(super) trait Watched:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static
{
    /// What is kept.
    type Facts: Send;
    /// `None`: nothing in it is of interest.
    fn facts(self) -> Option<Self::Facts>;
    /// Wraps an update for the one channel of all kinds.
    fn change(update: Update<Self::Facts>) -> Change;
}

/// Plural name of a resource, as in roles.
pub(super) fn resource<K: Watched>() -> &'static str {
    // Resource names are constants of the API types.
    match K::plural(&()) {
        std::borrow::Cow::Borrowed(name) => name,
        std::borrow::Cow::Owned(_) => "objects",
    }
}

/// Runs until nobody takes the changes.
pub(super) async fn run<K: Watched>(api: Api<K>, changes: mpsc::Sender<Change>, status: Reporter) {
    let resource = resource::<K>();
    let url = status.url();
    let mut listed = Vec::new();
    loop {
        let mut events = pin!(watch(api.clone(), watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            let update = match event {
                Err(error) => {
                    let message = explain(&error, resource, &K::group(&()), &url);
                    if status.failed(resource, &message) {
                        tracing::warn!(resource, "{message}; trying again");
                    }
                    // The library would resume from the same forgotten version for ever.
                    if is_gone(&error) && matches!(error, watcher::Error::WatchStartFailed(_)) {
                        break;
                    }
                    continue;
                }
                Ok(Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    let name = name(&object);
                    listed.extend(object.facts().map(|facts| (name, facts)));
                    continue;
                }
                Ok(Event::InitDone) => Update::Replaced(std::mem::take(&mut listed)),
                Ok(Event::Delete(object)) => Update::Removed(name(&object)),
                Ok(Event::Apply(object)) => {
                    let name = name(&object);
                    match object.facts() {
                        Some(facts) => Update::Set(name, facts),
                        None => Update::Removed(name),
                    }
                }
            };
            let listed_all = matches!(update, Update::Replaced(_));
            if changes.send(K::change(update)).await.is_err() {
                return;
            }
            status.heard(resource);
            if listed_all && status.synced(resource) {
                tracing::info!(resource, "listed");
            }
        }
        tokio::time::sleep(RELIST_PAUSE).await;
    }
}

fn name<K: Watched>(object: &K) -> ObjectName {
    ObjectName {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}
