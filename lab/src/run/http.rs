//! Small requests to the agents and the aggregator. URLs enter; status and body leave.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for a page. The status may be any.
///
/// # Errors
/// Nobody answers in time.
pub async fn get(url: String) -> anyhow::Result<(u16, String)> {
    static CLIENT: OnceLock<ureq::Agent> = OnceLock::new();
    let client = CLIENT.get_or_init(|| {
        ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .into()
    });
    tokio::task::spawn_blocking(move || {
        let mut response = client
            .get(&url)
            .call()
            .with_context(|| format!("{url} does not answer"))?;
        let body = response
            .body_mut()
            .read_to_string()
            .with_context(|| format!("{url} breaks off"))?;
        Ok((response.status().as_u16(), body))
    })
    .await
    .context("a request panicked")?
}

/// Asks for a page that must be there.
///
/// # Errors
/// Nobody answers in time, or the status is not 200.
pub async fn get_ok(url: String) -> anyhow::Result<String> {
    match get(url.clone()).await? {
        (200, body) => Ok(body),
        (status, body) => anyhow::bail!("{url} answers {status}: {}", body.trim()),
    }
}
