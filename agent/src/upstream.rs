//! The stream to the aggregator: keeps one open, with backoff while there is none. In, messages to send; out, what happens.

use std::time::Duration;

use anyhow::Context;
use backon::{BackoffBuilder, ExponentialBuilder};
use flowskew_proto::v1::{
    AgentMessage, AggregatorMessage, Hello, agent_message, aggregator_message, collector_client::CollectorClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// Reports in flight on a stream; further ones wait in the queue.
pub const IN_FLIGHT: usize = 8;
/// A stream that lived this long was a good one: the next pause is short again.
const GOOD_STREAM: Duration = Duration::from_secs(30);
/// An assignment of the largest size that the agent takes fits well.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// What happens upstream.
#[derive(Debug)]
pub enum Event {
    /// A stream is open and the aggregator has answered; send reports here.
    Connected(mpsc::Sender<AgentMessage>),
    /// The aggregator says something.
    Message(aggregator_message::Message),
    /// The stream is gone, with the reason.
    Disconnected(String),
}

/// Checks a URL and prepares connections to it. Nothing is sent yet.
pub fn endpoint(url: &str) -> anyhow::Result<Endpoint> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .with_context(|| format!("--aggregator '{url}' is not a URL; write http://HOST:9471"))?;
    let uri = endpoint.uri();
    anyhow::ensure!(
        uri.scheme_str() == Some("http") && uri.host().is_some(),
        "--aggregator '{url}' is not of the form http://HOST:9471 (TLS is not supported yet)"
    );
    Ok(endpoint
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(15))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true))
}

/// Keeps a stream open until the receiver of events is gone.
pub async fn run(endpoint: Endpoint, hello: Hello, events: mpsc::Sender<Event>) {
    // Jitter keeps a thousand agents from coming back at the same moment.
    let backoff = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(30))
        .with_jitter()
        .without_max_times();
    let mut pauses = backoff.build();
    loop {
        let started = tokio::time::Instant::now();
        let reason = match stream(&endpoint, &hello, &events).await {
            Ok(()) => "the aggregator closed the stream".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if events.send(Event::Disconnected(reason)).await.is_err() {
            return;
        }
        if started.elapsed() > GOOD_STREAM {
            pauses = backoff.build();
        }
        tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(30))).await;
    }
}

/// One stream, from connect to its end.
async fn stream(endpoint: &Endpoint, hello: &Hello, events: &mpsc::Sender<Event>) -> anyhow::Result<()> {
    let channel = endpoint
        .connect()
        .await
        .with_context(|| format!("cannot connect to {}", endpoint.uri()))?;
    let mut client = CollectorClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    sender.try_send(AgentMessage {
        message: Some(agent_message::Message::Hello(hello.clone())),
    })?;
    let mut inbound = client
        .stream(ReceiverStream::new(receiver))
        .await
        .context("the aggregator refused the stream")?;
    let mut inbound = std::pin::pin!(inbound.get_mut());
    if events.send(Event::Connected(sender)).await.is_err() {
        return Ok(());
    }
    while let Some(AggregatorMessage { message }) = inbound.message().await.context("the stream broke")? {
        // A message that this version does not know is skipped.
        if let Some(message) = message
            && events.send(Event::Message(message)).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        assert!(endpoint("http://127.0.0.1:9471").is_ok());
        for wrong in ["127.0.0.1:9471", "https://host:1", "", "ftp://x", "http://"] {
            let error = endpoint(wrong).expect_err(wrong);
            assert!(error.to_string().contains("http://HOST:9471"), "{error}");
        }
    }
}
