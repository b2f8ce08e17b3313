//! The stand-in as a real client of the Kubernetes API sees it: list, watch, broken watch, 410 and relist, errors.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::{Event as CoreEvent, Node, ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt};

use super::objects::{self, PodView};
use super::store::TokenOwner;
use super::*;
use crate::net::{Family, Protocol, ServicePlan, TrafficPolicy};

fn client(server: &ApiServer) -> Client {
    Client::try_from(Config::new(server.url().parse().unwrap())).unwrap()
}

fn plan(family: Family) -> ServicePlan {
    ServicePlan {
        namespace: "edge".to_owned(),
        name: "gateway".to_owned(),
        port_name: String::new(),
        protocol: Protocol::Tcp,
        port: 8883,
        target_port: 8883,
        node_port: 31_000,
        cluster_ip: family.cluster_ip(),
        load_balancer_ip: family.load_balancer_ip(),
        policy: TrafficPolicy::Local,
        affinity_timeout_seconds: Some(60),
    }
}

fn view(name: &str, ready: bool) -> PodView {
    PodView {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        node: "node-1".to_owned(),
        host_ip: Family::V4.node_address(0),
        ip: Family::V4.pod_address(0, 0),
        port: 8883,
        host_network: false,
        ready,
        zone: Some("east".to_owned()),
    }
}

fn put_pod(server: &ApiServer, name: &str, ready: bool) {
    server
        .store()
        .put(&objects::pod(&plan(Family::V4), &view(name, ready)))
        .unwrap();
}

/// The next thing that a watcher tells, errors included; a test that waits longer than this has failed.
async fn next<S: Stream<Item = watcher::Result<Event<Pod>>> + Unpin>(stream: &mut S) -> watcher::Result<Event<Pod>> {
    tokio::time::timeout(Duration::from_secs(20), stream.next())
        .await
        .expect("the watch is silent")
        .unwrap()
}

/// Reads until the pods are known, as a reflector would, and returns their names.
async fn relisted<S: Stream<Item = watcher::Result<Event<Pod>>> + Unpin>(stream: &mut S) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    loop {
        match next(stream).await {
            Ok(Event::InitApply(pod)) => drop(names.insert(pod.name_any())),
            Ok(Event::InitDone) => return names,
            Ok(Event::Init) | Err(_) => {}
            Ok(other) => panic!("expected a list, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn lists_and_gets_objects_of_each_kind() {
    let server = ApiServer::start().await.unwrap();
    let client = client(&server);
    for (family, kind) in [(Family::V4, "IPv4"), (Family::V6, "IPv6")] {
        let plan = plan(family);
        server
            .store()
            .put(&objects::node(
                "node-1",
                family.node_address(0),
                family.pod_cidr(0),
                Some(&"east".to_owned()),
            ))
            .unwrap();
        server.store().put(&objects::service(&plan, &plan.name)).unwrap();
        server
            .store()
            .put(&objects::endpoint_slice(
                &plan,
                8883,
                &[view("gateway-1", true), view("gateway-2", false)],
            ))
            .unwrap();

        let node = Api::<Node>::all(client.clone()).get("node-1").await.unwrap();
        assert_eq!(node.spec.unwrap().pod_cidrs.unwrap(), [family.pod_cidr(0).to_string()]);
        assert_eq!(
            node.status.unwrap().addresses.unwrap()[0].address,
            family.node_address(0).to_string()
        );

        let services = Api::<Service>::all(client.clone())
            .list(&ListParams::default())
            .await
            .unwrap();
        let spec = services.items[0].spec.clone().unwrap();
        assert_eq!(spec.external_traffic_policy.as_deref(), Some("Local"));
        assert_eq!(
            spec.session_affinity_config.unwrap().client_ip.unwrap().timeout_seconds,
            Some(60)
        );
        assert!(spec.health_check_node_port.is_some());

        let slices = Api::<EndpointSlice>::namespaced(client.clone(), "edge")
            .list(&ListParams::default())
            .await
            .unwrap();
        assert_eq!(slices.items[0].address_type, kind);
        let ready = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| endpoint.conditions.clone().unwrap().ready;
        assert_eq!(
            slices.items[0].endpoints.iter().map(ready).collect::<Vec<_>>(),
            [Some(true), Some(false)]
        );
    }
    put_pod(&server, "gateway-1", true);
    let pod = Api::<Pod>::namespaced(client.clone(), "edge")
        .get("gateway-1")
        .await
        .unwrap();
    assert_eq!(pod.metadata.owner_references.unwrap()[0].kind, "StatefulSet");
    assert_eq!(pod.status.unwrap().pod_ip.as_deref(), Some("10.244.0.2"));
    let elsewhere = Api::<Pod>::namespaced(client, "other")
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(elsewhere.items.is_empty());
}

#[tokio::test]
async fn a_watch_tells_what_happens_after_the_list() {
    let server = ApiServer::start().await.unwrap();
    put_pod(&server, "a", true);
    let mut stream = watcher(Api::<Pod>::all(client(&server)), watcher::Config::default()).boxed();
    assert_eq!(relisted(&mut stream).await, BTreeSet::from(["a".to_owned()]));

    put_pod(&server, "b", true);
    assert!(matches!(next(&mut stream).await, Ok(Event::Apply(pod)) if pod.name_any() == "b"));
    put_pod(&server, "b", false);
    let changed = next(&mut stream).await;
    assert!(matches!(changed, Ok(Event::Apply(pod)) if pod.metadata.deletion_timestamp.is_some()));
    assert!(server.store().delete::<Pod>("edge", "b").unwrap());
    assert!(matches!(next(&mut stream).await, Ok(Event::Delete(pod)) if pod.name_any() == "b"));
    assert!(
        !server.store().delete::<Pod>("edge", "b").unwrap(),
        "it is gone already"
    );
}

#[tokio::test]
async fn a_dropped_watch_misses_nothing() {
    let server = ApiServer::start().await.unwrap();
    let mut stream = watcher(Api::<Pod>::all(client(&server)), watcher::Config::default()).boxed();
    assert!(relisted(&mut stream).await.is_empty());
    // Proves that the watch stands before it is dropped.
    put_pod(&server, "a", true);
    assert!(matches!(next(&mut stream).await, Ok(Event::Apply(_))));

    // A watch without a watcher around it ends, with or without an error: clients differ in what they make of a break.
    let pods = Api::<Pod>::all(client(&server));
    let mut bare = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(bare.next().await, Some(Ok(WatchEvent::Added(_)))));

    server.store().drop_watches();
    let end = tokio::time::timeout(Duration::from_secs(20), bare.next())
        .await
        .expect("the watch stands");
    assert!(matches!(end, None | Some(Err(_))), "{end:?}");

    put_pod(&server, "b", true);
    loop {
        match next(&mut stream).await {
            Ok(Event::Apply(pod)) => {
                assert_eq!(pod.name_any(), "b", "no list in between");
                break;
            }
            Err(_) => {}
            Ok(other) => panic!("expected pod b, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_version_that_is_too_old_is_gone_and_the_client_lists_again() {
    let server = ApiServer::start().await.unwrap();
    put_pod(&server, "a", true);
    let mut stream = watcher(Api::<Pod>::all(client(&server)), watcher::Config::default()).boxed();
    relisted(&mut stream).await;
    put_pod(&server, "b", true);
    assert!(matches!(next(&mut stream).await, Ok(Event::Apply(_))));

    server.store().expire();
    let gone = next(&mut stream).await;
    assert!(
        matches!(&gone, Err(watcher::Error::WatchError(status)) if status.code == 410),
        "{gone:?}"
    );
    assert_eq!(
        relisted(&mut stream).await,
        BTreeSet::from(["a".to_owned(), "b".to_owned()])
    );

    let mut old = Api::<Pod>::all(client(&server))
        .watch(&WatchParams::default(), "1")
        .await
        .unwrap()
        .boxed();
    assert!(matches!(old.try_next().await.unwrap(), Some(WatchEvent::Error(status)) if status.code == 410));
}

#[tokio::test]
async fn bookmarks_come_to_those_who_ask_and_a_watch_ends_in_time() {
    let server = ApiServer::start().await.unwrap();
    put_pod(&server, "a", true);
    let pods = Api::<Pod>::all(client(&server));
    for (bookmarks, expected) in [(true, true), (false, false)] {
        let params = WatchParams {
            bookmarks,
            ..WatchParams::default()
        }
        .timeout(3);
        let watch = pods.watch(&params, "0").await.unwrap();
        let events: Vec<_> = watch.try_collect().await.unwrap();
        assert!(matches!(events.first(), Some(WatchEvent::Added(_))));
        assert_eq!(
            events.iter().any(|event| matches!(event, WatchEvent::Bookmark(_))),
            expected
        );
    }
}

#[tokio::test]
async fn events_are_taken_and_tokens_reviewed() {
    let server = ApiServer::start().await.unwrap();
    let event = CoreEvent {
        metadata: ObjectMeta {
            generate_name: Some("skew-".to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            kind: Some("Service".to_owned()),
            ..ObjectReference::default()
        },
        reason: Some("PlacementSkew".to_owned()),
        ..CoreEvent::default()
    };
    let events = Api::<CoreEvent>::namespaced(client(&server), "edge");
    let created = events.create(&PostParams::default(), &event).await.unwrap();
    assert!(created.name_any().starts_with("skew-"));
    assert_eq!(server.store().created_events()[0]["reason"], "PlacementSkew");

    server.store().accept_token(
        "secret",
        TokenOwner {
            username: "agent".to_owned(),
            groups: vec!["nodes".to_owned()],
        },
    );
    let reviews = Api::<TokenReview>::all(client(&server));
    for (token, user) in [("secret", Some("agent")), ("guess", None)] {
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let status = reviews
            .create(&PostParams::default(), &review)
            .await
            .unwrap()
            .status
            .unwrap();
        assert_eq!(status.authenticated, Some(user.is_some()));
        assert_eq!(status.user.and_then(|user| user.username).as_deref(), user);
    }
}

#[tokio::test]
async fn what_is_not_served_is_refused_as_kubernetes_would() {
    let server = ApiServer::start().await.unwrap();
    let pods = Api::<Pod>::namespaced(client(&server), "edge");
    let refused = |result: kube::Result<()>| match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("expected an error of the API, got {other:?}"),
    };
    assert_eq!(refused(pods.get("none").await.map(drop)), 404);
    assert_eq!(
        refused(pods.list(&ListParams::default().labels("app=x")).await.map(drop)),
        422
    );
    let watch = pods.watch(&WatchParams::default(), "later").await.map(drop);
    assert_eq!(refused(watch), 400);
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client(&server), "edge");
    assert_eq!(refused(leases.list(&ListParams::default()).await.map(drop)), 404);
}
