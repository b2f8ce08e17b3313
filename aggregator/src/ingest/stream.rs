//! One agent's stream: its messages enter, events for the owner leave, and the owner's answers go back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flowskew_proto::v1;
use flowskew_proto::v1::agent_message::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Status, Streaming};

use super::wire;
use crate::assignment::Assignment;
use crate::now_ms;
use crate::state::{Admission, Event};

/// An agent that says nothing at all is let go after this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

type Outbox = mpsc::Sender<Result<v1::AggregatorMessage, Status>>;

/// Serves one stream to its end, and tells the agent why when the end is not its own.
pub(super) async fn serve(
    id: u64,
    peer: Option<SocketAddr>,
    mut inbox: Streaming<v1::AgentMessage>,
    outbox: Outbox,
    events: mpsc::Sender<Event>,
    mut drain: watch::Receiver<bool>,
) {
    let peer = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
    let hello = tokio::select! {
        hello = greeting(&mut inbox) => hello,
        () = ended(&mut drain) => Err(stopping()),
    };
    let ended = match hello {
        Ok(hello) => {
            let node = hello.node.clone();
            tracing::info!(node, %peer, agent = hello.agent_version, kernel = hello.kernel_release, "agent connected");
            let result = converse(id, hello, &mut inbox, &outbox, &events, &mut drain).await;
            // The owner is gone only when the process ends.
            let _sent = events
                .send(Event::Disconnected {
                    node: node.clone(),
                    stream: id,
                })
                .await;
            match &result {
                Ok(()) => tracing::info!(node, %peer, "agent disconnected"),
                Err(status) => tracing::warn!(node, %peer, "agent's stream ended: {}", status.message()),
            }
            result
        }
        Err(status) => {
            tracing::warn!(%peer, "stream refused: {}", status.message());
            Err(status)
        }
    };
    if let Err(status) = ended {
        // An agent that is already gone needs no reason.
        let _sent = outbox.send(Err(status)).await;
    }
}

async fn greeting(inbox: &mut Streaming<v1::AgentMessage>) -> Result<wire::Hello, Status> {
    let first = tokio::time::timeout(HELLO_TIMEOUT, inbox.message())
        .await
        .map_err(|_elapsed| Status::deadline_exceeded("no Hello within 10 s"))??;
    match first.and_then(|first| first.message) {
        Some(Message::Hello(hello)) => wire::hello(hello).map_err(Status::invalid_argument),
        Some(Message::Report(_)) => Err(Status::failed_precondition("a Report came before Hello")),
        None => Err(Status::invalid_argument("the first message is empty; it must be Hello")),
    }
}

async fn converse(
    id: u64,
    hello: wire::Hello,
    inbox: &mut Streaming<v1::AgentMessage>,
    outbox: &Outbox,
    events: &mpsc::Sender<Event>,
    drain: &mut watch::Receiver<bool>,
) -> Result<(), Status> {
    let node = hello.node.clone();
    let (reply, admission) = oneshot::channel();
    tell(
        events,
        Event::Connected {
            hello,
            stream: id,
            reply,
        },
    )
    .await?;
    let Admission {
        mut assignments,
        mut replaced,
    } = admission
        .await
        .map_err(|_gone| stopping())?
        .map_err(Status::resource_exhausted)?;
    assignments.mark_changed();
    loop {
        tokio::select! {
            biased;
            () = ended(drain) => return Err(stopping()),
            _ended = &mut replaced => {
                return Err(Status::aborted(format!("another agent has connected as node {node}")));
            }
            changed = assignments.changed() => {
                changed.map_err(|_gone| stopping())?;
                let assignment: Option<Arc<Assignment>> = assignments.borrow_and_update().clone();
                if let Some(assignment) = assignment {
                    answer(outbox, wire::assignment(&assignment)).await?;
                }
            }
            message = inbox.message() => {
                let Some(message) = message? else { return Ok(()) };
                match message.message {
                    Some(Message::Report(report)) => {
                        let report = wire::report(report).map_err(Status::invalid_argument)?;
                        let ack = wire::ack(report.epoch, report.sequence);
                        let (reply, taken) = oneshot::channel();
                        let received_ms = now_ms();
                        let report = Box::new(report);
                        tell(events, Event::Report { node: node.clone(), stream: id, report, received_ms, reply }).await?;
                        taken.await.map_err(|_gone| stopping())?;
                        answer(outbox, ack).await?;
                    }
                    Some(Message::Hello(_)) => {
                        return Err(Status::failed_precondition("a second Hello on one stream"));
                    }
                    // A message that a newer agent knows.
                    None => {}
                }
            }
        }
    }
}

/// Completes when the process is to stop.
async fn ended(drain: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is also the end.
    let _end = drain.wait_for(|drain| *drain).await;
}

async fn tell(events: &mpsc::Sender<Event>, event: Event) -> Result<(), Status> {
    events.send(event).await.map_err(|_gone| stopping())
}

async fn answer(outbox: &Outbox, message: v1::AggregatorMessage) -> Result<(), Status> {
    outbox
        .send(Ok(message))
        .await
        .map_err(|_gone| Status::cancelled("the agent has closed the stream"))
}

fn stopping() -> Status {
    Status::unavailable("the aggregator is stopping; connect again")
}
