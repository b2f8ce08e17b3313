//! The JSON shapes of the Kubernetes API that are not objects: lists, watch events, errors.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::kinds::Kind;

/// An error as Kubernetes tells it.
pub(super) fn status(code: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code.as_u16(),
    })
}

/// The same, as a response.
pub(super) fn failure(code: StatusCode, reason: &str, message: &str) -> Response {
    (code, Json(status(code, reason, message))).into_response()
}

/// The list of objects at a version.
pub(super) fn list(kind: Kind, version: u64, items: &[Value]) -> Value {
    json!({
        "kind": format!("{}List", kind.kind),
        "apiVersion": kind.api_version,
        "metadata": { "resourceVersion": version.to_string() },
        "items": items,
    })
}

/// One line of a watch.
pub(super) fn watch_line(word: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({ "type": word, "object": object }).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A bookmark: nothing of this kind happened up to `version`.
pub(super) fn bookmark(kind: Kind, version: u64) -> Vec<u8> {
    let object = json!({
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": { "resourceVersion": version.to_string() },
    });
    watch_line("BOOKMARK", &object)
}
