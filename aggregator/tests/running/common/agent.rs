//! An agent that says what a test wants, over real gRPC.

use std::net::IpAddr;

use flowskew_aggregator::now_ms;
use flowskew_proto::v1;
use flowskew_proto::v1::agent_message::Message;
use flowskew_proto::v1::aggregator_message::Message as Answer;
use flowskew_proto::v1::collector_client::CollectorClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::PATIENCE;

pub struct Agent {
    outbox: mpsc::Sender<v1::AgentMessage>,
    inbox: Streaming<v1::AggregatorMessage>,
}

impl Agent {
    /// A stream on which nothing has been said.
    pub async fn silent(url: &str) -> Self {
        let mut client = CollectorClient::connect(url.to_owned()).await.unwrap();
        let (outbox, messages) = mpsc::channel(16);
        let inbox = client.stream(ReceiverStream::new(messages)).await.unwrap().into_inner();
        Self { outbox, inbox }
    }

    /// A stream that has begun with Hello.
    pub async fn connect(url: &str, node: &str) -> Self {
        let agent = Self::silent(url).await;
        agent.say(Message::Hello(hello(node))).await;
        agent
    }

    pub async fn say(&self, message: Message) {
        self.outbox
            .send(v1::AgentMessage { message: Some(message) })
            .await
            .unwrap();
    }

    /// A message without content.
    pub async fn say_nothing(&self) {
        self.outbox.send(v1::AgentMessage { message: None }).await.unwrap();
    }

    /// The next message, or how the stream ended.
    pub async fn hear(&mut self) -> Result<Option<Answer>, Status> {
        let message = tokio::time::timeout(PATIENCE, self.inbox.message())
            .await
            .expect("the aggregator says nothing")?;
        Ok(message.and_then(|message| message.message))
    }

    /// The next assignment.
    pub async fn assignment(&mut self) -> v1::Assignment {
        loop {
            if let Answer::Assignment(assignment) = self.hear().await.unwrap().unwrap() {
                return assignment;
            }
        }
    }

    /// Reports, and waits until that is acknowledged.
    pub async fn report(&mut self, report: v1::Report) {
        let expected = v1::Ack {
            epoch: report.epoch,
            sequence: report.sequence,
        };
        self.say(Message::Report(report)).await;
        loop {
            if let Answer::Ack(ack) = self.hear().await.unwrap().unwrap() {
                assert_eq!(ack, expected);
                return;
            }
        }
    }

    /// How the stream ends.
    pub async fn end(&mut self) -> Status {
        loop {
            match self.hear().await {
                Err(status) => return status,
                Ok(None) => return Status::ok("ended"),
                Ok(Some(_)) => {}
            }
        }
    }
}

pub fn hello(node: &str) -> v1::Hello {
    v1::Hello {
        node: node.to_owned(),
        agent_version: "0.0.0".to_owned(),
        ..Default::default()
    }
}

/// A report of one endpoint's external flows, taken now. Counting began before the window that is shown when none is asked for.
pub fn report(epoch: u64, sequence: u64, entries: Vec<v1::LedgerEntry>) -> v1::Report {
    v1::Report {
        epoch,
        sequence,
        taken_at_ms: now_ms(),
        sent_at_ms: now_ms(),
        epoch_started_at_ms: now_ms() - 600_000,
        entries,
        ..Default::default()
    }
}

/// An address as the wire has it.
pub fn bytes(address: &str) -> Vec<u8> {
    let address = match address.parse().unwrap() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    address.octets().to_vec()
}

pub fn entry(address: &str, opened: u64, established: u64) -> v1::LedgerEntry {
    v1::LedgerEntry {
        address: bytes(address),
        port: 18883,
        protocol: v1::Protocol::Tcp.into(),
        cgroup_id: 1,
        classes: vec![v1::ClassCounts {
            source_class: v1::SourceClass::External.into(),
            opened,
            established,
            ..Default::default()
        }],
        ..Default::default()
    }
}
