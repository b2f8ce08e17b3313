//! The configuration enters; a running aggregator leaves: listeners, the owner of the state, and the watches.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};

use crate::cluster::{ConnectError, Connection};
use crate::config::Config;
use crate::state::{Event, Settings};
use crate::{api, cluster, ingest, state};

/// Open streams and requests get this long to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The aggregator cannot start, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A port is taken, or not ours.
    #[error("cannot listen on {address}: {source}; set {flag}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The API server is not described well enough.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The listener for agents broke.
    #[error("serving agents failed: {0}")]
    Grpc(#[from] tonic::transport::Error),
    /// The listener for requests broke.
    #[error("serving HTTP failed: {0}")]
    Http(io::Error),
    /// A part of the program ended by itself, which is a defect.
    #[error("{0} has ended unexpectedly")]
    Ended(&'static str),
    /// A part of the program broke, which is a defect.
    #[error("a part of the program broke: {0}")]
    Panicked(JoinError),
}

/// An aggregator that listens, but does not yet serve.
pub struct App {
    settings: Settings,
    connection: Connection,
    grpc: TcpListener,
    http: TcpListener,
}

impl App {
    /// Opens the listeners and prepares the client of the API server.
    ///
    /// # Errors
    /// When a port is taken, or nothing says where the API server is.
    pub async fn bind(config: &Config) -> Result<Self, AppError> {
        let connection = cluster::connect(config.kube_api.as_deref(), config.kubeconfig.as_deref()).await?;
        Ok(Self {
            settings: Settings {
                client_events: config.client_events,
                client_key_rotation: config.client_key_rotation,
                bucket: config.bucket,
                report_interval: config.report_interval,
            },
            connection,
            grpc: listen(config.grpc_listen, "--grpc-listen").await?,
            http: listen(config.http_listen, "--http-listen").await?,
        })
    }

    /// Where agents connect.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn grpc_address(&self) -> io::Result<SocketAddr> {
        self.grpc.local_addr()
    }

    /// Where requests are answered.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn http_address(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Serves until `stop` completes, then ends every stream and request.
    ///
    /// # Errors
    /// When a listener breaks or a task ends by itself.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), AppError> {
        tracing::info!(
            grpc = %self.grpc.local_addr().map_err(AppError::Http)?,
            http = %self.http.local_addr().map_err(AppError::Http)?,
            api_server = self.connection.url,
            "started"
        );
        let (drain, draining) = watch::channel(false);
        let (events, handle, owner) = state::owner(self.settings);
        let (reporter, sync) = cluster::status(&self.connection.url);
        let watching = cluster::run(self.connection, reporter, deliver_to(events.clone()));
        let grpc = ingest::serve(self.grpc, events, draining.clone());
        let http = api::serve(self.http, api::Api { state: handle, sync }, draining);

        let mut parts = JoinSet::new();
        parts.spawn(owner.map(|()| Ok("the owner of the state")));
        parts.spawn(grpc.map(|result| result.map(|()| "the gRPC server").map_err(AppError::Grpc)));
        parts.spawn(http.map(|result| result.map(|()| "the HTTP server").map_err(AppError::Http)));
        let watching = parts.spawn(watching.map(|()| Ok("the watch of the cluster")));
        tokio::select! {
            () = stop => {}
            Some(ended) = parts.join_next() => {
                return Err(ended.map_or_else(AppError::Panicked, |ended| ended.map_or_else(|error| error, AppError::Ended)));
            }
        }
        tracing::info!("stopping");
        drain.send_replace(true);
        watching.abort();
        let all_end = async { while parts.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, all_end).await.is_err() {
            tracing::warn!("some streams or requests did not end within {DRAIN_TIMEOUT:?}; they are cut");
        }
        Ok(())
    }
}

async fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, AppError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| AppError::Listen { address, flag, source })
}

/// Hands views to the owner, one at a time; false when it is gone.
fn deliver_to(events: mpsc::Sender<Event>) -> impl FnMut(cluster::ClusterView) -> DeliverFuture {
    move |view| {
        let events = events.clone();
        Box::pin(async move {
            let (reply, seen) = oneshot::channel();
            events.send(Event::Cluster { view, reply }).await.is_ok() && seen.await.is_ok()
        })
    }
}

type DeliverFuture = std::pin::Pin<Box<dyn Future<Output = bool> + Send>>;
