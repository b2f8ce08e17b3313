//! One handler a path. Answers are computed from a snapshot, away from the owner of the state, who only copies figures.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use super::query::Parameters;
use super::{Api, ApiError, DEFAULT_WINDOW};
use crate::cluster::ObjectName;
use crate::report::ServiceReport;
use crate::state::{Figures, Scope, WindowStart};
use crate::view::{self, AgentState, ServiceSummary};
use crate::{metrics as openmetrics, millis};

type Parsed = Result<Query<Parameters>, QueryRejection>;

pub(super) async fn services(
    State(api): State<Api>,
    parameters: Parsed,
) -> Result<Json<Vec<ServiceSummary>>, ApiError> {
    let window = parsed(parameters)?.window()?;
    let figures = figures(&api, Scope::All, window).await?;
    let summaries = blocking(move || view::services(&figures)).await?;
    Ok(Json(summaries.map_err(ApiError::internal)?))
}

pub(super) async fn report(
    State(api): State<Api>,
    Path((namespace, name)): Path<(String, String)>,
    parameters: Parsed,
) -> Result<Json<ServiceReport>, ApiError> {
    let parameters = parsed(parameters)?;
    let window = parameters.window()?;
    let service = ObjectName { namespace, name };
    let figures = figures(&api, Scope::Service(service.clone()), window).await?;
    if figures.ports.is_empty() {
        return Err(ApiError::not_found(format!(
            "there is no Service {service} with a selector or endpoints and a TCP or UDP port"
        )));
    }
    let port = parameters.port(&service.to_string(), &figures.ports)?.clone();
    let report = blocking(move || view::assemble(&figures, &port, 0)).await?;
    Ok(Json(report.map_err(ApiError::internal)?))
}

pub(super) async fn nodes(State(api): State<Api>) -> Result<Json<Vec<AgentState>>, ApiError> {
    Ok(Json(view::agents(api.state.nodes().await?)))
}

pub(super) async fn metrics(State(api): State<Api>) -> Result<impl IntoResponse, ApiError> {
    let windows = vec![WindowStart::Ago(millis(DEFAULT_WINDOW))];
    let snapshot = api.state.metrics(windows).await?;
    let sync = api.sync.borrow().clone();
    let text = blocking(move || openmetrics::render(&snapshot, &sync))
        .await?
        .map_err(ApiError::internal)?;
    Ok(([(header::CONTENT_TYPE, openmetrics::CONTENT_TYPE)], text))
}

pub(super) async fn ready(State(api): State<Api>) -> (StatusCode, String) {
    let sync = api.sync.borrow();
    if sync.ready {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", *sync))
    }
}

fn parsed(parameters: Parsed) -> Result<Parameters, ApiError> {
    parameters
        .map(|Query(parameters)| parameters)
        .map_err(|error| ApiError::bad_request(error.body_text()))
}

async fn figures(api: &Api, scope: Scope, window: WindowStart) -> Result<Figures, ApiError> {
    let figures = api.state.figures(scope, vec![window]).await?;
    figures.ok_or_else(|| ApiError::unavailable(format!("the cluster is not known yet: {}", *api.sync.borrow())))
}

/// Analysis takes milliseconds for each Service: too long for the threads that serve streams.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)
}
