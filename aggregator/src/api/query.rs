//! The parameters of a request enter as text; a window and a port leave.

use serde::Deserialize;

use super::{ApiError, DEFAULT_WINDOW};
use crate::config::duration;
use crate::ledger::RETENTION_MS;
use crate::state::{PortFigures, WindowStart};
use crate::{millis, now_ms};

/// `?port=…&window=…&since=…`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    port: Option<String>,
    window: Option<String>,
    since: Option<String>,
}

impl Parameters {
    pub(super) fn window(&self) -> Result<WindowStart, ApiError> {
        match (&self.window, &self.since) {
            (Some(_), Some(_)) => Err(ApiError::bad_request("give either window or since, not both")),
            (None, None) => Ok(WindowStart::Ago(millis(DEFAULT_WINDOW))),
            (Some(window), None) => {
                let window = millis(duration(window).map_err(ApiError::bad_request)?);
                if window == 0 {
                    return Err(ApiError::bad_request("a window of no length holds no flows"));
                }
                within_retention(window)?;
                Ok(WindowStart::Ago(window))
            }
            (None, Some(since)) => {
                let at: u64 = since.parse().map_err(|_not_a_number| {
                    ApiError::bad_request(format!("\"{since}\" is no time: since is in milliseconds since 1970"))
                })?;
                let now = now_ms();
                if at > now {
                    return Err(ApiError::bad_request(format!(
                        "since {at} is in the future; it is now {now}"
                    )));
                }
                within_retention(now - at)?;
                Ok(WindowStart::At(at))
            }
        }
    }

    /// The port asked for by number, name, or number and protocol; or the only one.
    pub(super) fn port<'a>(&self, service: &str, ports: &'a [PortFigures]) -> Result<&'a PortFigures, ApiError> {
        let listed = |ports: &[&PortFigures]| ports.iter().map(|port| describe(port)).collect::<Vec<_>>().join(", ");
        let all: Vec<&PortFigures> = ports.iter().collect();
        let asked = self.port.as_deref().unwrap_or_default();
        let found: Vec<&PortFigures> = match &self.port {
            None => all.clone(),
            Some(_) => all.iter().copied().filter(|port| is_called(port, asked)).collect(),
        };
        match found.as_slice() {
            [only] => Ok(only),
            [] => Err(ApiError::not_found(format!(
                "{service} has no port {asked}; it has {}",
                listed(&all)
            ))),
            several => Err(ApiError::bad_request(format!(
                "{service} has several ports{}, choose one: {}",
                if asked.is_empty() {
                    String::new()
                } else {
                    format!(" {asked}")
                },
                listed(several)
            ))),
        }
    }
}

fn is_called(port: &PortFigures, asked: &str) -> bool {
    asked == port.port.to_string()
        || asked.eq_ignore_ascii_case(&format!("{}/{}", port.port, port.protocol))
        || !asked.is_empty() && asked == port.port_name
}

fn within_retention(window_ms: u64) -> Result<(), ApiError> {
    if window_ms > RETENTION_MS {
        return Err(ApiError::bad_request(
            "counts are kept for an hour: ask for a window of at most 60m",
        ));
    }
    Ok(())
}

fn describe(port: &PortFigures) -> String {
    let name = if port.port_name.is_empty() {
        String::new()
    } else {
        format!(" ({})", port.port_name)
    };
    format!("{}/{}{name}", port.port, port.protocol)
}
