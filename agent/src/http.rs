//! The agent's HTTP port: /metrics, /healthz and /readyz.

use std::net::SocketAddr;

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    events::EventMetrics,
    metrics::{self, Published},
};

#[derive(Clone)]
struct Shared {
    published: watch::Receiver<Published>,
    events: EventMetrics,
}

/// Takes the port. Fails at once when it cannot be had.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} for /metrics; choose another with --http-listen"))
}

/// Serves until the agent ends.
pub async fn serve(
    listener: TcpListener,
    published: watch::Receiver<Published>,
    events: EventMetrics,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Shared { published, events });
    axum::serve(listener, router).await
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    let published = shared.published.borrow().clone();
    match metrics::render(&published, &shared.events) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot render metrics: {error}\n"),
        )
            .into_response(),
    }
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    if shared.published.borrow().ready {
        (StatusCode::OK, "ready\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the aggregator's assignment, or taking up open flows\n",
        )
    }
}
