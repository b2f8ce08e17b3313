//! A small aggregator on loopback: in, what an agent says; out, an assignment, acknowledgements, and all that it has heard.

use std::{net::SocketAddr, pin::Pin, time::Duration};

use flowskew_proto::v1::{
    Ack, AgentMessage, AggregatorMessage, Assignment, Report,
    agent_message::Message,
    aggregator_message,
    collector_server::{Collector, CollectorServer},
};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Gives an assignment, acknowledges each report when told to, and passes on all that it hears.
struct TestCollector {
    heard: mpsc::UnboundedSender<Message>,
    acknowledge: bool,
    assignment: Assignment,
}

#[tonic::async_trait]
impl Collector for TestCollector {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<AggregatorMessage, Status>> + Send>>;

    async fn stream(&self, request: Request<Streaming<AgentMessage>>) -> Result<Response<Self::StreamStream>, Status> {
        let (sender, receiver) = mpsc::channel(64);
        let (heard, acknowledge) = (self.heard.clone(), self.acknowledge);
        let mut inbound = request.into_inner();
        let say = |message| Ok(AggregatorMessage { message: Some(message) });
        sender
            .try_send(say(aggregator_message::Message::Assignment(self.assignment.clone())))
            .expect("room");
        tokio::spawn(async move {
            while let Some(Ok(AgentMessage { message: Some(message) })) = inbound.next().await {
                if let (Message::Report(report), true) = (&message, acknowledge) {
                    let ack = Ack {
                        epoch: report.epoch,
                        sequence: report.sequence,
                    };
                    let _ = sender.send(say(aggregator_message::Message::Ack(ack))).await;
                }
                let _ = heard.send(message);
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// The aggregator of a test.
pub struct TestAggregator {
    /// Of its own, since only the end of a runtime ends its streams at once, as a crash does.
    runtime: Runtime,
    heard: mpsc::UnboundedReceiver<Message>,
}

impl TestAggregator {
    pub async fn start(address: SocketAddr, acknowledge: bool, assignment: Assignment) -> Self {
        let (sender, heard) = mpsc::unbounded_channel();
        let service = CollectorServer::new(TestCollector {
            heard: sender,
            acknowledge,
            assignment,
        });
        let runtime = Runtime::new().expect("a runtime");
        let (up, is_up) = oneshot::channel();
        runtime.spawn(async move {
            // The runtime of an aggregator that was stopped may hold the port for a moment.
            let listener = loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            up.send(()).expect("the test waits");
            let incoming = TcpListenerStream::new(listener);
            Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .expect("serves");
        });
        timeout(PATIENCE, is_up)
            .await
            .expect("the port is free in time")
            .expect("the server is up");
        Self { runtime, heard }
    }

    pub async fn hears_hello(&mut self) -> String {
        match timeout(PATIENCE, self.heard.recv()).await.expect("a message in time") {
            Some(Message::Hello(hello)) => hello.node,
            other => panic!("expected hello, got {other:?}"),
        }
    }

    pub async fn hears_report(&mut self) -> Report {
        match timeout(PATIENCE, self.heard.recv()).await.expect("a message in time") {
            Some(Message::Report(report)) => report,
            other => panic!("expected a report, got {other:?}"),
        }
    }

    /// Ends the server and every stream.
    pub fn stop(self) {
        self.runtime.shutdown_background();
    }
}
