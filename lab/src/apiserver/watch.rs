//! A watch. A version to start from enters; a stream of JSON lines leaves, one a change, until the client's timeout, a
//! forced break, or 410 Gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures::stream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::answer;
use super::kinds::Kind;
use super::store::{ChangeType, Changes, Store};

/// How often bookmarks are sent to those who asked.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(2);
/// The longest watch.
const LONGEST: Duration = Duration::from_secs(600);

/// What a client asked for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub kind: Kind,
    pub namespace: Option<String>,
    /// Start after this version; without it, with the objects as they are.
    pub after: Option<u64>,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
}

/// The body of the response.
pub(super) fn body(store: Arc<Store>, request: Request) -> Body {
    // Subscribed before the first look: a change in between is seen by the next.
    let changed = store.subscribe();
    let generation = store.generation();
    let mut lines = VecDeque::new();
    let position = request.after.unwrap_or_else(|| {
        let (version, objects) = store.list(request.kind, request.namespace.as_deref());
        lines.extend(
            objects
                .iter()
                .map(|object| answer::watch_line(ChangeType::Added.word(), object)),
        );
        version
    });
    let now = Instant::now();
    let end = now + request.timeout.unwrap_or(LONGEST).min(LONGEST);
    let next_bookmark = now + BOOKMARK_INTERVAL;
    let watcher = Watcher {
        store,
        request,
        changed,
        generation,
        position,
        lines,
        end,
        next_bookmark,
        last: false,
    };
    Body::from_stream(stream::unfold(watcher, |mut watcher| async move {
        let item = watcher.next().await?;
        Some((item, watcher))
    }))
}

struct Watcher {
    store: Arc<Store>,
    request: Request,
    changed: watch::Receiver<()>,
    generation: u64,
    /// All changes up to this version are sent or in `lines`.
    position: u64,
    lines: VecDeque<Vec<u8>>,
    end: Instant,
    next_bookmark: Instant,
    /// No line comes after those in `lines`.
    last: bool,
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(Bytes::from(line)));
            }
            if self.last {
                return None;
            }
            if self.store.generation() != self.generation {
                self.last = true;
                return Some(Err(std::io::Error::other("the watch was dropped on purpose")));
            }
            self.look();
            if self.lines.is_empty() && !self.last {
                self.sleep().await;
            }
        }
    }

    /// Takes over what happened since `position`.
    fn look(&mut self) {
        match self.store.after(self.position, self.request.kind) {
            Changes::Some { now, changes } => {
                let namespace = self.request.namespace.as_deref();
                let wanted = changes.iter().filter(|change| {
                    namespace.is_none_or(|namespace| change.object["metadata"]["namespace"] == namespace)
                });
                self.lines
                    .extend(wanted.map(|change| answer::watch_line(change.change.word(), &change.object)));
                self.position = now;
            }
            Changes::Gone { oldest } => {
                let message = format!("too old resource version: {} ({oldest})", self.position);
                self.lines.push_back(answer::watch_line(
                    "ERROR",
                    &answer::status(StatusCode::GONE, "Expired", &message),
                ));
                self.last = true;
            }
        }
    }

    async fn sleep(&mut self) {
        let bookmark = if self.request.bookmarks {
            self.next_bookmark
        } else {
            self.end
        };
        tokio::select! {
            changed = self.changed.changed() => self.last = changed.is_err(),
            () = tokio::time::sleep_until(bookmark.min(self.end)) => {
                if Instant::now() >= self.end {
                    self.last = true;
                } else {
                    self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    self.lines.push_back(answer::bookmark(self.request.kind, self.position));
                }
            }
        }
    }
}
