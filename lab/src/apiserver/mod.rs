//! A stand-in for the Kubernetes API server: list, get and watch of Nodes, Pods, Services and EndpointSlices, creation of
//! Events, and TokenReview, over real HTTP on loopback. Objects enter through [`ApiServer::store`]; what clients see and
//! what they created leaves. It does no authentication: it is for a lab on one machine.

mod answer;
mod kinds;
pub mod objects;
mod routes;
mod store;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use store::Store;

/// A running stand-in; it stops when dropped.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    store: Arc<Store>,
    server: JoinHandle<()>,
}

impl ApiServer {
    /// Listens on a free port of 127.0.0.1 with an empty store.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("the API server stand-in finds no free port")?;
        let address = listener
            .local_addr()
            .context("the API server stand-in has no address")?;
        let store = Arc::new(Store::default());
        let router = routes::router(Arc::clone(&store));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!("the API server stand-in stopped: {error}");
            }
        });
        Ok(Self { address, store, server })
    }

    /// Where it listens, as `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The objects that it serves.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[cfg(test)]
mod tests;
