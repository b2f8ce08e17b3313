//! Flags enter; a client for the API server leaves.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// A client, and the URL it talks to, for messages.
pub struct Connection {
    pub(super) client: Client,
    /// URL of the API server.
    pub url: String,
}

/// The flags do not lead to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// `--kube-api` is no URL.
    #[error("\"{0}\" is not the URL of an API server: write for example http://127.0.0.1:8001 after --kube-api")]
    Url(String),
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {}: {source}; check the file and its current context", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// Nothing says where the API server is.
    #[error("no API server is known: set --kubeconfig or --kube-api, or run in a pod with a ServiceAccount ({0})")]
    Infer(kube::config::InferConfigError),
    /// The configuration is complete, but not usable.
    #[error("cannot make a client for the API server {url}: {source}; check its certificates and credentials")]
    Client {
        /// URL of the API server.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// Makes a client: of a plain URL, of a kubeconfig, or of what the environment says. Connects to nothing yet.
///
/// # Errors
/// When the flags or files do not describe an API server.
pub async fn connect(kube_api: Option<&str>, kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let config = match (kube_api, kubeconfig) {
        (Some(url), _) => plain(parse_url(url)?),
        (None, Some(path)) => {
            let fail = |source| ConnectError::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(fail)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(fail)?
        }
        (None, None) => Config::infer().await.map_err(ConnectError::Infer)?,
    };
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|source| ConnectError::Client {
        url: url.clone(),
        source: Box::new(source),
    })?;
    Ok(Connection { client, url })
}

fn plain(url: axum::http::Uri) -> Config {
    // Without TLS nothing is to be trusted; otherwise a system without certificates would be an error.
    let trusted = (url.scheme_str() == Some("http")).then(Vec::new);
    let mut config = Config::new(url);
    config.root_cert = trusted;
    config
}

fn parse_url(text: &str) -> Result<axum::http::Uri, ConnectError> {
    text.parse::<axum::http::Uri>()
        .ok()
        .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
        .ok_or_else(|| ConnectError::Url(text.to_owned()))
}
