//! Paths and parameters. HTTP requests enter; lists, objects, watches, created Events and token reviews leave, or an
//! error in the form that Kubernetes clients read.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::kinds::{KINDS, Kind};
use super::store::Store;
use super::watch;

type Shared = State<Arc<Store>>;

/// All that is served.
pub(super) fn router(store: Arc<Store>) -> Router {
    let kinds = KINDS
        .into_iter()
        .fold(Router::new(), |router, kind| router.merge(kind_routes(kind)));
    kinds
        .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review_token))
        .route(
            "/version",
            get(|| async { Json(json!({ "major": "1", "minor": "33", "gitVersion": "v1.33.0" })) }),
        )
        .fallback(|uri: Uri| async move {
            let message = format!("the API server stand-in does not serve {}", uri.path());
            answer::failure(StatusCode::NOT_FOUND, "NotFound", &message)
        })
        .with_state(store)
}

fn kind_routes(kind: Kind) -> Router<Arc<Store>> {
    let prefix = if kind.api_version == "v1" {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{}", kind.api_version)
    };
    let plural = kind.plural;
    let all =
        get(move |State(store): Shared, Query(query): Query<ReadQuery>| async move { read(store, kind, None, &query) });
    let router = Router::new().route(&format!("{prefix}/{plural}"), all);
    if !kind.namespaced {
        let one =
            get(move |State(store): Shared, Path(name): Path<String>| async move { object(&store, kind, "", &name) });
        return router.route(&format!("{prefix}/{plural}/{{name}}"), one);
    }
    let mut some = get(
        move |State(store): Shared, Path(namespace): Path<String>, Query(query): Query<ReadQuery>| async move {
            read(store, kind, Some(namespace), &query)
        },
    );
    if kind.kind == "Event" {
        some = some.post(
            move |State(store): Shared, Path(namespace): Path<String>, Json(event)| async move {
                create_event(&store, kind, &namespace, event)
            },
        );
    }
    let one = get(
        move |State(store): Shared, Path((namespace, name)): Path<(String, String)>| async move {
            object(&store, kind, &namespace, &name)
        },
    );
    router
        .route(&format!("{prefix}/namespaces/{{namespace}}/{plural}"), some)
        .route(&format!("{prefix}/namespaces/{{namespace}}/{plural}/{{name}}"), one)
}

/// The parameters of a list or watch that matter here. `limit` is not among them: a server may return more.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadQuery {
    watch: Option<String>,
    resource_version: Option<String>,
    allow_watch_bookmarks: Option<String>,
    send_initial_events: Option<String>,
    timeout_seconds: Option<u64>,
    label_selector: Option<String>,
    field_selector: Option<String>,
}

fn read(store: Arc<Store>, kind: Kind, namespace: Option<String>, query: &ReadQuery) -> Response {
    let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let yes = |text: &Option<String>| matches!(text.as_deref(), Some("true" | "1"));
    // To ignore one of these would give the client another answer than it asked for.
    if given(&query.label_selector) || given(&query.field_selector) || given(&query.send_initial_events) {
        let message = "the API server stand-in supports neither selectors nor sendInitialEvents";
        return answer::failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    }
    if !yes(&query.watch) {
        let (version, items) = store.list(kind, namespace.as_deref());
        return Json(answer::list(kind, version, &items)).into_response();
    }
    let after = match query.resource_version.as_deref() {
        None | Some("" | "0") => None,
        Some(version) => match version.parse() {
            Ok(version) => Some(version),
            Err(_) => {
                let message = format!("resourceVersion '{version}' is not one of this server");
                return answer::failure(StatusCode::BAD_REQUEST, "BadRequest", &message);
            }
        },
    };
    let bookmarks = yes(&query.allow_watch_bookmarks);
    let timeout = query.timeout_seconds.map(Duration::from_secs);
    let body = watch::body(
        store,
        watch::Request {
            kind,
            namespace,
            after,
            bookmarks,
            timeout,
        },
    );
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn object(store: &Store, kind: Kind, namespace: &str, name: &str) -> Response {
    match store.get(kind, namespace, name) {
        Some(object) => Json(object).into_response(),
        None => {
            let message = format!("{} \"{name}\" not found", kind.plural);
            answer::failure(StatusCode::NOT_FOUND, "NotFound", &message)
        }
    }
}

fn create_event(store: &Store, kind: Kind, namespace: &str, event: Value) -> Response {
    if !event["metadata"].is_object() {
        return answer::failure(StatusCode::BAD_REQUEST, "BadRequest", "the Event has no metadata");
    }
    (StatusCode::CREATED, Json(store.create_event(kind, namespace, event))).into_response()
}

async fn review_token(State(store): Shared, Json(mut review): Json<Value>) -> Response {
    let Some(token) = review["spec"]["token"].as_str() else {
        return answer::failure(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            "the TokenReview has no spec.token",
        );
    };
    review["status"] = match store.token_owner(token) {
        Some(owner) => json!({
            "authenticated": true,
            "user": { "username": owner.username, "groups": owner.groups },
        }),
        None => json!({ "authenticated": false, "error": "the token is not known" }),
    };
    (StatusCode::CREATED, Json(review)).into_response()
}
