//! A question to the aggregator enters; its report, or an error that says what to do, leaves.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::args::ReportArgs;
use crate::millis;
use crate::report::ServiceReport;
use crate::view::ServiceSummary;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Names closer than this, from 0 to 1, may be what was meant.
const SIMILAR: f64 = 0.8;
const MAX_SUGGESTIONS: usize = 5;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Nothing answers.
    #[error(
        "cannot reach the aggregator at {url}: {reason}\n\
         In a cluster, open a way to it first:\n    \
         kubectl -n flowskew port-forward service/flowskew-aggregator 9472:9472\n\
         or say where it is with --aggregator URL"
    )]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why that failed.
        reason: String,
    },
    /// Something else than an aggregator answers.
    #[error("{url} does not answer like a flowskew aggregator ({reason}); check --aggregator")]
    Foreign {
        /// Who answered.
        url: String,
        /// What is odd.
        reason: String,
    },
    /// The aggregator says no.
    #[error("{0}")]
    Refused(String),
    /// The name cannot be one of a Service.
    #[error("\"{0}\" is not the name of a Service: write NAME or NAMESPACE/NAME")]
    Name(String),
    /// The report cannot be written.
    #[error("cannot write JSON: {0}")]
    Json(serde_json::Error),
}

/// Asks for a report.
pub(super) fn report(args: &ReportArgs) -> Result<ServiceReport, CliError> {
    let (namespace, name) = args.service.split_once('/').unwrap_or((&args.namespace, &args.service));
    if [namespace, name]
        .iter()
        .any(|part| part.is_empty() || !part.bytes().all(is_name_byte))
    {
        return Err(CliError::Name(args.service.clone()));
    }
    let window = match (args.window, args.since) {
        (_, Some(since)) => Some(("since", since.to_string())),
        (Some(window), None) => Some(("window", format!("{}ms", millis(window)))),
        (None, None) => None,
    };
    let port = args.port.as_ref().map(|port| ("port", port.clone()));
    let base = args.aggregator.trim_end_matches('/');
    let path = format!("/api/v1/services/{namespace}/{name}/report");
    match get(base, &path, port.into_iter().chain(window))? {
        Ok(report) => Ok(report),
        Err(Refusal { status: 404, message }) => Err(CliError::Refused(suggest(base, namespace, name, message)?)),
        Err(Refusal { status: 400, message }) if args.port.is_none() && message.contains("choose one") => {
            Err(CliError::Refused(format!("{message}; say which with --port")))
        }
        Err(Refusal { message, .. }) => Err(CliError::Refused(message)),
    }
}

/// What the aggregator says when it does not do as asked.
struct Refusal {
    status: u16,
    message: String,
}

fn get<T: DeserializeOwned>(
    base: &str,
    path: &str,
    query: impl Iterator<Item = (&'static str, String)>,
) -> Result<Result<T, Refusal>, CliError> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(TIMEOUT))
        .build()
        .into();
    let foreign = |reason: String| CliError::Foreign {
        url: base.to_owned(),
        reason,
    };
    let mut response = agent
        .get(format!("{base}{path}"))
        .query_pairs(query)
        .call()
        .map_err(|error| CliError::Unreachable {
            url: base.to_owned(),
            reason: error.to_string(),
        })?;
    let status = response.status().as_u16();
    if status == 200 {
        return response
            .body_mut()
            .read_json()
            .map(Ok)
            .map_err(|error| foreign(error.to_string()));
    }
    let body: serde_json::Value = response
        .body_mut()
        .read_json()
        .map_err(|_not_json| foreign(format!("status {status} without JSON")))?;
    let message = body["error"]
        .as_str()
        .ok_or_else(|| foreign(format!("status {status} without an error")))?;
    Ok(Err(Refusal {
        status,
        message: message.to_owned(),
    }))
}

/// Adds the Services that may have been meant, when it is the Service that is unknown.
fn suggest(base: &str, namespace: &str, name: &str, message: String) -> Result<String, CliError> {
    let Ok(services) = get::<Vec<ServiceSummary>>(base, "/api/v1/services", std::iter::empty())? else {
        return Ok(message);
    };
    if services
        .iter()
        .any(|service| service.namespace == namespace && service.name == name)
    {
        return Ok(message);
    }
    let near = near_names(&services, name);
    Ok(match near.as_slice() {
        [] if services.is_empty() => format!("{message}; the aggregator knows no Service at all"),
        [] => format!("{message}; none of the {} Services has a similar name", services.len()),
        near => format!("{message}; did you mean {}?", near.join(" or ")),
    })
}

/// The most similar names first, at most [`MAX_SUGGESTIONS`].
pub(super) fn near_names(services: &[ServiceSummary], name: &str) -> Vec<String> {
    let mut near: Vec<(f64, String)> = services
        .iter()
        .map(|service| (strsim::jaro_winkler(&service.name, name), service))
        .filter(|(similarity, service)| *similarity >= SIMILAR || service.name.contains(name))
        .map(|(similarity, service)| (similarity, format!("{}/{}", service.namespace, service.name)))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}
