//! The objects of the stand-in and their history. Typed objects enter; JSON with resource versions, and the changes after
//! a version, leave. The history is bounded: a watcher that is too far behind is told so, as by a real API server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::kinds::Kind;

/// Changes that are kept.
const HISTORY: usize = 4_096;
/// Events of clients that are kept; the oldest go.
const CREATED: usize = 4_096;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeType {
    /// It is new.
    Added,
    /// It is another.
    Modified,
    /// It is gone.
    Deleted,
}

impl ChangeType {
    /// The word of the watch protocol.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of the history.
#[derive(Debug, Clone)]
pub struct Change {
    /// Resource version that it made.
    pub version: u64,
    /// Which kind.
    pub kind: Kind,
    /// What happened.
    pub change: ChangeType,
    /// The object after it; for a deletion, the last state.
    pub object: Value,
}

/// Objects of one kind by namespace (empty for none) and name.
type Objects = BTreeMap<(String, String), Value>;

/// Who a token stands for.
#[derive(Debug, Clone)]
pub struct TokenOwner {
    /// For example `system:serviceaccount:flowskew:flowskew-agent`.
    pub username: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    /// Versions up to this one have no history any more.
    compacted: u64,
    /// Grows when all watches are dropped; a watch lives in one generation.
    generation: u64,
    objects: BTreeMap<Kind, Objects>,
    history: VecDeque<Change>,
    created: VecDeque<Value>,
    tokens: BTreeMap<String, TokenOwner>,
}

/// The objects, shared by all requests.
#[derive(Debug)]
pub struct Store {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

impl Default for Store {
    fn default() -> Self {
        // A version of 0 means "any" to clients, so the first is 1.
        let inner = Inner {
            version: 1,
            ..Inner::default()
        };
        Self {
            inner: Mutex::new(inner),
            changed: watch::Sender::new(()),
        }
    }
}

impl Store {
    /// Adds or replaces an object.
    ///
    /// # Errors
    /// Its kind is not served, it has no name, or it cannot be written as JSON.
    pub fn put<T>(&self, object: &T) -> anyhow::Result<()>
    where
        T: Resource + Metadata<Ty = ObjectMeta> + Serialize,
    {
        let kind = Kind::of::<T>()?;
        let metadata = object.metadata();
        let name = metadata
            .name
            .clone()
            .ok_or_else(|| anyhow::anyhow!("a {} has no name", kind.kind))?;
        self.put_value(
            kind,
            metadata.namespace.as_deref().unwrap_or(""),
            &name,
            serde_json::to_value(object)?,
        );
        Ok(())
    }

    /// Removes an object; returns whether it was there.
    ///
    /// # Errors
    /// Its kind is not served.
    pub fn delete<T: Resource>(&self, namespace: &str, name: &str) -> anyhow::Result<bool> {
        let kind = Kind::of::<T>()?;
        let key = (namespace.to_owned(), name.to_owned());
        let mut inner = self.lock();
        let Some(object) = inner.objects.get_mut(&kind).and_then(|objects| objects.remove(&key)) else {
            return Ok(false);
        };
        inner.record(kind, ChangeType::Deleted, object);
        drop(inner);
        self.changed.send_replace(());
        Ok(true)
    }

    /// Ends all watches as a broken connection would.
    pub fn drop_watches(&self) {
        self.lock().generation += 1;
        self.changed.send_replace(());
    }

    /// Forgets the history: each watch, and each that starts from a version read before, gets 410 Gone.
    pub fn expire(&self) {
        let mut inner = self.lock();
        inner.version += 1;
        inner.compacted = inner.version;
        inner.history.clear();
        drop(inner);
        self.changed.send_replace(());
    }

    /// Makes TokenReview accept `token`.
    pub fn accept_token(&self, token: &str, owner: TokenOwner) {
        self.lock().tokens.insert(token.to_owned(), owner);
    }

    /// The Events that clients created, oldest first.
    pub fn created_events(&self) -> Vec<Value> {
        self.lock().created.iter().cloned().collect()
    }

    pub(super) fn token_owner(&self, token: &str) -> Option<TokenOwner> {
        self.lock().tokens.get(token).cloned()
    }

    pub(super) fn put_value(&self, kind: Kind, namespace: &str, name: &str, mut object: Value) -> Value {
        let mut inner = self.lock();
        let version = inner.version + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let objects = inner.objects.entry(kind).or_default();
        let before = objects.insert((namespace.to_owned(), name.to_owned()), object.clone());
        let change = if before.is_some() {
            ChangeType::Modified
        } else {
            ChangeType::Added
        };
        inner.record(kind, change, object.clone());
        drop(inner);
        self.changed.send_replace(());
        object
    }

    /// Takes an Event that a client created, and names it if need be.
    pub(super) fn create_event(&self, kind: Kind, namespace: &str, mut event: Value) -> Value {
        let metadata = &event["metadata"];
        let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            (Some(name), _) => name.to_owned(),
            (None, prefix) => format!("{}{}", prefix.unwrap_or("event-"), self.lock().version),
        };
        event["metadata"]["name"] = json!(name);
        event["metadata"]["namespace"] = json!(namespace);
        let event = self.put_value(kind, namespace, &name, event);
        let mut inner = self.lock();
        inner.created.push_back(event.clone());
        if inner.created.len() > CREATED {
            inner.created.pop_front();
        }
        event
    }

    /// One object.
    pub(super) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.lock()
            .objects
            .get(&kind)?
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// All objects of a kind, in one namespace if named, and the version at which this is so.
    pub(super) fn list(&self, kind: Kind, namespace: Option<&str>) -> (u64, Vec<Value>) {
        let inner = self.lock();
        let objects = inner.objects.get(&kind).into_iter().flatten();
        let wanted = objects.filter(|((of, _), _)| namespace.is_none_or(|namespace| namespace == of));
        (inner.version, wanted.map(|(_, object)| object.clone()).collect())
    }

    /// The changes of a kind after `version`.
    pub(super) fn after(&self, version: u64, kind: Kind) -> Changes {
        let inner = self.lock();
        if version < inner.compacted {
            return Changes::Gone {
                oldest: inner.compacted,
            };
        }
        let changes = inner
            .history
            .iter()
            .filter(|change| change.version > version && change.kind == kind);
        Changes::Some {
            now: inner.version,
            changes: changes.cloned().collect(),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock, and each change is whole: poison would mean nothing.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a watcher learns.
#[derive(Debug)]
pub(super) enum Changes {
    /// What happened, up to version `now`.
    Some {
        /// The version up to which this is all.
        now: u64,
        /// In order.
        changes: Vec<Change>,
    },
    /// The version is too old.
    Gone {
        /// The oldest version that would do.
        oldest: u64,
    },
}

impl Inner {
    fn record(&mut self, kind: Kind, change: ChangeType, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push_back(Change {
            version: self.version,
            kind,
            change,
            object,
        });
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.version;
        }
    }
}
