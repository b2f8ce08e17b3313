//! A small API server: lists and watches of four kinds of objects over HTTP. It keeps resource versions as a real one
//! does, and can drop its watches, forget its history, or refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub const NODES: &str = "/api/v1/nodes";
pub const PODS: &str = "/api/v1/pods";
pub const SERVICES: &str = "/api/v1/services";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// How a watch from a forgotten version is answered.
#[derive(Clone, Copy)]
pub enum Gone {
    /// As real servers mostly do: status 200, and an ERROR event.
    Event,
    /// With HTTP status 410.
    Status,
}

struct World {
    version: u64,
    objects: BTreeMap<(String, String), Value>,
    history: Vec<(u64, String, Value)>,
    /// Watches from before this version are answered with 410.
    oldest: u64,
    gone: Gone,
    forbidden: BTreeSet<String>,
    lists: BTreeMap<String, u32>,
}

struct Shared {
    world: Mutex<World>,
    /// The newest version; watches wait for it.
    versions: watch::Sender<u64>,
    /// Watches of an earlier generation end.
    generation: watch::Sender<u64>,
}

#[derive(Clone)]
pub struct KubeApi {
    pub url: String,
    shared: Arc<Shared>,
}

impl KubeApi {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let world = World {
            version: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            oldest: 0,
            gone: Gone::Event,
            forbidden: BTreeSet::new(),
            lists: BTreeMap::new(),
        };
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            versions: watch::channel(1).0,
            generation: watch::channel(0).0,
        });
        let router = axum::Router::new().fallback(serve).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared }
    }

    /// With nodes a and b, and a Service telemetry/gateway of pods gw-0 on a and gw-1 on b.
    pub async fn with_service() -> Self {
        let api = Self::start().await;
        api.put(NODES, "a", node("10.244.0.0/24", "192.168.0.1"));
        api.put(NODES, "b", node("10.244.1.0/24", "192.168.0.2"));
        api.put(SERVICES, "telemetry/gateway", service());
        api.put(
            SLICES,
            "telemetry/gateway-1",
            slice(&[("gw-0", "a", "10.244.0.7"), ("gw-1", "b", "10.244.1.7")]),
        );
        api
    }

    /// Creates or changes an object.
    pub fn put(&self, path: &str, name: &str, object: Value) {
        self.change(path, name, Some(object), true);
    }

    pub fn delete(&self, path: &str, name: &str) {
        self.change(path, name, None, true);
    }

    /// Changes an object without telling any watch, as happens while history is lost.
    pub fn put_unseen(&self, path: &str, name: &str, object: Value) {
        self.change(path, name, Some(object), false);
    }

    pub fn delete_unseen(&self, path: &str, name: &str) {
        self.change(path, name, None, false);
    }

    /// Ends every watch, as when a connection or a server breaks.
    pub fn drop_watches(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }

    /// From now on, a watch from any version up to now is too old.
    pub fn forget_history(&self, gone: Gone) {
        let mut world = self.shared.world.lock().unwrap();
        world.version += 1;
        world.oldest = world.version;
        world.gone = gone;
    }

    pub fn forbid(&self, path: &str, forbidden: bool) {
        let mut world = self.shared.world.lock().unwrap();
        if forbidden {
            world.forbidden.insert(path.to_owned())
        } else {
            world.forbidden.remove(path)
        };
    }

    /// How often this was listed.
    pub fn lists(&self, path: &str) -> u32 {
        self.shared.world.lock().unwrap().lists.get(path).copied().unwrap_or(0)
    }

    fn change(&self, path: &str, name: &str, object: Option<Value>, seen: bool) {
        let mut world = self.shared.world.lock().unwrap();
        world.version += 1;
        let version = world.version;
        let key = (path.to_owned(), name.to_owned());
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let with_metadata = |mut object: Value| {
            object["metadata"]["name"] = json!(name);
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = json!(namespace);
            }
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            object
        };
        let (kind, object) = match object {
            Some(object) => {
                let object = with_metadata(object);
                let before = world.objects.insert(key, object.clone());
                (if before.is_some() { "MODIFIED" } else { "ADDED" }, object)
            }
            None => ("DELETED", with_metadata(world.objects.remove(&key).unwrap())),
        };
        if seen {
            world
                .history
                .push((version, path.to_owned(), json!({ "type": kind, "object": object })));
            self.shared.versions.send_replace(version);
        }
    }
}

async fn serve(State(shared): State<Arc<Shared>>, uri: Uri, Query(query): Query<BTreeMap<String, String>>) -> Response {
    let path = uri.path().to_owned();
    let (kind, group) = match path.as_str() {
        NODES => ("NodeList", "v1"),
        PODS => ("PodList", "v1"),
        SERVICES => ("ServiceList", "v1"),
        SLICES => ("EndpointSliceList", "discovery.k8s.io/v1"),
        _ => return failure(404, "NotFound", "no such resource"),
    };
    let mut world = shared.world.lock().unwrap();
    if world.forbidden.contains(&path) {
        return failure(403, "Forbidden", "User \"test\" cannot do this at the cluster scope");
    }
    if query.get("watch").is_none_or(|watch| watch != "true") {
        *world.lists.entry(path.clone()).or_default() += 1;
        let items: Vec<&Value> = world
            .objects
            .iter()
            .filter(|((found, _), _)| *found == path)
            .map(|(_, object)| object)
            .collect();
        let metadata = json!({ "resourceVersion": world.version.to_string() });
        return Json(json!({ "kind": kind, "apiVersion": group, "metadata": metadata, "items": items }))
            .into_response();
    }
    let from: u64 = query["resourceVersion"].parse().unwrap();
    if from < world.oldest {
        let status = status(410, "Expired", "too old resource version");
        return match world.gone {
            Gone::Status => (StatusCode::GONE, Json(status)).into_response(),
            Gone::Event => Body::from(format!("{}\n", json!({ "type": "ERROR", "object": status }))).into_response(),
        };
    }
    drop(world);
    let versions = shared.versions.subscribe();
    let mut generation = shared.generation.subscribe();
    generation.mark_unchanged();
    let start = (shared, path, from, versions, generation);
    Body::from_stream(futures::stream::unfold(
        start,
        |(shared, path, at, mut versions, mut generation)| async move {
            loop {
                versions.mark_unchanged();
                let next = {
                    let world = shared.world.lock().unwrap();
                    world
                        .history
                        .iter()
                        .find(|(version, found, _)| *version > at && *found == path)
                        .cloned()
                };
                if let Some((version, _, event)) = next {
                    return Some((
                        Ok::<_, Infallible>(format!("{event}\n")),
                        (shared, path, version, versions, generation),
                    ));
                }
                tokio::select! {
                    _dropped = generation.changed() => return None,
                    changed = versions.changed() => changed.ok()?,
                }
            }
        },
    ))
    .into_response()
}

fn failure(code: u16, reason: &str, message: &str) -> Response {
    (StatusCode::from_u16(code).unwrap(), Json(status(code, reason, message))).into_response()
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code })
}

pub fn node(pods: &str, address: &str) -> Value {
    json!({ "spec": { "podCIDRs": [pods] },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": "host" }] } })
}

pub fn service() -> Value {
    json!({ "spec": { "selector": { "app": "gateway" }, "externalTrafficPolicy": "Local", "sessionAffinity": "None",
                      "ports": [{ "name": "mqtts", "port": 8883, "protocol": "TCP" }] } })
}

/// Of pods, with node and address.
pub fn slice(pods: &[(&str, &str, &str)]) -> Value {
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|(pod, node, address)| {
            json!({ "addresses": [address], "nodeName": node, "conditions": { "ready": true },
                    "targetRef": { "kind": "Pod", "namespace": "telemetry", "name": pod, "uid": format!("uid-{pod}") } })
        })
        .collect();
    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "gateway" } }, "addressType": "IPv4",
            "ports": [{ "name": "mqtts", "port": 18883, "protocol": "TCP" }], "endpoints": endpoints })
}
