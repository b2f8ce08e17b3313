//! What the watches say about themselves enters; one status for readiness and metrics leaves.

use std::collections::BTreeMap;
use std::fmt;

use tokio::sync::watch;

/// The state of all watches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncStatus {
    /// URL of the API server.
    pub url: String,
    /// By resource, for example "pods".
    pub watches: BTreeMap<&'static str, WatchState>,
    /// The cluster is known: every watch has listed everything once, and the view made of it is in use.
    pub ready: bool,
}

/// The state of one watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchState {
    /// Has listed everything once.
    pub synced: bool,
    /// Errors so far.
    pub errors: u64,
    /// The last error, until the next event.
    pub error: Option<String>,
}

/// What is missing, for people.
impl fmt::Display for SyncStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: Vec<String> = self
            .watches
            .iter()
            .filter(|(_, watch)| !watch.synced)
            .map(|(resource, watch)| match &watch.error {
                Some(error) => format!("{resource} ({error})"),
                None => format!("{resource} (listing)"),
            })
            .collect();
        if self.ready {
            return f.write_str("all is listed");
        }
        if waiting.is_empty() {
            return write!(
                f,
                "all is listed from the API server {}, and will be in use in a moment",
                self.url
            );
        }
        write!(
            f,
            "not yet listed from the API server {}: {}",
            self.url,
            waiting.join(", ")
        )
    }
}

/// The sending end, one clone for each watch.
#[derive(Clone)]
pub struct Reporter(watch::Sender<SyncStatus>);

pub(super) fn channel<const N: usize>(
    url: &str,
    resources: [&'static str; N],
) -> (Reporter, watch::Receiver<SyncStatus>) {
    let watches = resources.map(|resource| (resource, WatchState::default()));
    let (sender, receiver) = watch::channel(SyncStatus {
        url: url.to_owned(),
        watches: watches.into(),
        ready: false,
    });
    (Reporter(sender), receiver)
}

impl Reporter {
    pub(super) fn url(&self) -> String {
        self.0.borrow().url.clone()
    }

    pub(super) fn delivered(&self) {
        self.0
            .send_if_modified(|status| !std::mem::replace(&mut status.ready, true));
    }

    /// True when it is the first time.
    pub(super) fn synced(&self, resource: &'static str) -> bool {
        let mut first = false;
        self.change(resource, |watch| first = !std::mem::replace(&mut watch.synced, true));
        first
    }

    /// An event has arrived: whatever was wrong is over.
    pub(super) fn heard(&self, resource: &'static str) {
        if self
            .0
            .borrow()
            .watches
            .get(resource)
            .is_some_and(|watch| watch.error.is_some())
        {
            self.change(resource, |watch| watch.error = None);
        }
    }

    /// True when this error is another one than the last.
    pub(super) fn failed(&self, resource: &'static str, error: &str) -> bool {
        let mut news = false;
        self.change(resource, |watch| {
            watch.errors += 1;
            news = watch.error.as_deref() != Some(error);
            watch.error = Some(error.to_owned());
        });
        news
    }

    fn change(&self, resource: &'static str, change: impl FnOnce(&mut WatchState)) {
        self.0
            .send_modify(|status| change(status.watches.entry(resource).or_default()));
    }
}
