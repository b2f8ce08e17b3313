//! HTTP requests enter; JSON reports, metrics and health leave.
//!
//! | path | answer |
//! |---|---|
//! | `/api/v1/services?window=5m` | [`ServiceSummary`](crate::view::ServiceSummary) list |
//! | `/api/v1/services/NAMESPACE/NAME/report?port=8883&window=5m` | [`ServiceReport`](crate::report::ServiceReport) |
//! | `/api/v1/nodes` | [`AgentState`](crate::view::AgentState) list |
//! | `/metrics` | OpenMetrics text |
//! | `/healthz` | 200 while the process runs |
//! | `/readyz` | 200 once the cluster is known, else 503 and what is missing |
//!
//! `since=UNIX_MS` may replace `window`. Errors are `{"error": "..."}`.

mod error;
mod query;
mod routes;

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cluster::SyncStatus;
use crate::state::Handle;

pub use error::ApiError;

/// What the handlers work with.
#[derive(Debug, Clone)]
pub struct Api {
    /// Asks the owner of the state.
    pub state: Handle,
    /// What the watches of the API server say.
    pub sync: watch::Receiver<SyncStatus>,
}

/// The routes.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/api/v1/services", get(routes::services))
        .route("/api/v1/services/{namespace}/{name}/report", get(routes::report))
        .route("/api/v1/nodes", get(routes::nodes))
        .route("/metrics", get(routes::metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(routes::ready))
        .fallback(|| async { ApiError::not_found("no such path; see /api/v1/services, /api/v1/nodes, /metrics") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here")
        })
        .with_state(api)
}

/// Serves until `drain` turns true.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, api: Api, mut drain: watch::Receiver<bool>) -> std::io::Result<()> {
    axum::serve(listener, router(api))
        .with_graceful_shutdown(async move {
            // An error means that the sender is gone, which is also the end.
            let _ended = drain.wait_for(|drain| *drain).await;
        })
        .await
}

/// Window of the verdicts and findings in the metrics, and of a report when none is asked for.
const DEFAULT_WINDOW: Duration = Duration::from_secs(300);
