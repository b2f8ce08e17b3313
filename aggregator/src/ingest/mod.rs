//! Agents' gRPC streams enter; greetings and reports leave as events for the owner of the state, acknowledgements and
//! assignments go back to the agents.
//!
//! Each stream has at most one report under way. When the owner is busy the stream waits, and the agent keeps what it
//! has: nothing is dropped here.

mod stream;
pub mod wire;

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowskew_proto::v1;
use flowskew_proto::v1::collector_server::{Collector, CollectorServer};
use futures::Stream;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::state::Event;

/// Largest message that is read. A report of 16,384 ledger entries, all that a kernel map holds, is about 5 MB.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Messages to one agent under way.
const OUTBOX: usize = 16;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

struct Service {
    events: mpsc::Sender<Event>,
    drain: watch::Receiver<bool>,
    next_stream: AtomicU64,
}

#[tonic::async_trait]
impl Collector for Service {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::AggregatorMessage, Status>> + Send>>;

    async fn stream(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let peer = request.remote_addr();
        tokio::spawn(stream::serve(
            id,
            peer,
            request.into_inner(),
            outbox,
            self.events.clone(),
            self.drain.clone(),
        ));
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

/// Serves agents until `drain` turns true; every open stream then ends.
///
/// # Errors
/// When the transport fails.
pub async fn serve(
    listener: TcpListener,
    events: mpsc::Sender<Event>,
    drain: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let mut stop = drain.clone();
    let service = CollectorServer::new(Service {
        events,
        drain,
        next_stream: AtomicU64::new(1),
    })
    .max_decoding_message_size(MAX_MESSAGE_BYTES);
    Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .serve_with_incoming_shutdown(service, TcpListenerStream::new(listener), async move {
            // An error means that the sender is gone, which is also the end.
            let _ended = stop.wait_for(|drain| *drain).await;
        })
        .await
}
