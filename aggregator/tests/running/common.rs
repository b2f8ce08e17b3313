//! What the tests of the running aggregator share: an aggregator in this process, an API server that can misbehave, and
//! an agent that says what a test wants.

pub mod agent;
pub mod kube_api;

use std::time::Duration;

use clap::Parser;
use flowskew_aggregator::app::App;
use flowskew_aggregator::config::Config;
use flowskew_aggregator::report::ServiceReport;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Nothing that these tests wait for takes this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Aggregator {
    pub grpc: String,
    pub http: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Aggregator {
    /// Against this API server, with buckets and intervals of a second.
    pub async fn start(kube_api: &str) -> Self {
        let config = Config::parse_from([
            "flowskew-aggregator",
            "--grpc-listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            "--report-interval=1s",
            "--bucket=1s",
            "--kube-api",
            kube_api,
        ]);
        let app = App::bind(&config).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        Self {
            grpc: format!("http://{}", app.grpc_address().unwrap()),
            http: format!("http://{}", app.http_address().unwrap()),
            stop,
            task: tokio::spawn(async move {
                app.run(async { drop(stopped.await) }).await.unwrap();
            }),
        }
    }

    /// Started and ready.
    pub async fn ready(kube_api: &str) -> Self {
        let aggregator = Self::start(kube_api).await;
        aggregator.eventually("/readyz", |status, _| status == 200).await;
        aggregator
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .expect("it did not stop")
            .unwrap();
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.http);
        tokio::task::spawn_blocking(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            let mut response = agent.get(&url).call().unwrap();
            (
                response.status().as_u16(),
                response.body_mut().read_to_string().unwrap(),
            )
        })
        .await
        .unwrap()
    }

    /// Asks until the answer is right.
    pub async fn eventually(&self, path: &str, right: impl Fn(u16, &str) -> bool) -> String {
        let mut last = (0, String::new());
        let asking = async {
            loop {
                last = self.get(path).await;
                if right(last.0, &last.1) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let result = tokio::time::timeout(PATIENCE, asking).await;
        assert!(
            result.is_ok(),
            "{path} never became right; at last: {} {}",
            last.0,
            last.1
        );
        last.1
    }

    /// Of the Service that [`kube_api::KubeApi::with_service`] has.
    pub async fn report(&self, query: &str) -> ServiceReport {
        let (status, body) = self
            .get(&format!("/api/v1/services/telemetry/gateway/report{query}"))
            .await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}
