//! An error of a watch enters; a sentence that names the resource, the verb, the server and the remedy leaves.

use std::error::Error as _;

use kube::core::Status;
use kube::runtime::watcher::Error;

/// Characters of the server's own words that are repeated.
const MAX_SAID: usize = 200;

/// True when the server has forgotten the version that the watch wanted to go on from: it must list again.
pub(super) fn is_gone(error: &Error) -> bool {
    status(error).is_some_and(|status| status.code == 410)
}

pub(super) fn explain(error: &Error, resource: &str, group: &str, url: &str) -> String {
    let verb = if matches!(error, Error::InitialListFailed(_)) {
        "list"
    } else {
        "watch"
    };
    let status = status(error);
    // A proxy on the way may answer with a whole page.
    let said: String = status
        .and_then(|status| status.message.lines().next())
        .unwrap_or_default()
        .chars()
        .take(MAX_SAID)
        .collect();
    match status {
        Some(status) if status.code == 403 => format!(
            "{url} forbids to {verb} {resource}: grant the verbs list and watch on {resource} in API group \"{group}\" \
             with a ClusterRole ({said})"
        ),
        Some(status) if status.code == 401 => {
            format!(
                "{url} does not accept the credentials to {verb} {resource}: {}",
                status.message
            )
        }
        Some(status) if status.code == 410 => {
            format!("{url} no longer has the history to {verb} {resource} from; listing again")
        }
        Some(status) => format!(
            "{url} answered {} to {verb} {resource}: {}",
            status.code, status.message
        ),
        None => format!("cannot {verb} {resource} at {url}: {}", chain(error)),
    }
}

fn status(error: &Error) -> Option<&Status> {
    match error {
        Error::WatchError(status) => Some(status),
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The innermost cause says most, for example "Connection refused".
fn chain(error: &Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    let mut next = error.source();
    while let Some(source) = next {
        innermost = source;
        next = source.source();
    }
    innermost.to_string()
}
