//! Messages of agents, also broken ones, and what is kept of them.

use flowskew_proto::v1;

use super::*;

fn address(last: u8) -> Vec<u8> {
    let mut address = vec![0; 16];
    address[15] = last;
    address
}

fn entry(uid: &str, doors: Vec<v1::DoorCounts>) -> v1::LedgerEntry {
    v1::LedgerEntry {
        address: address(1),
        port: 53,
        protocol: v1::Protocol::Udp.into(),
        pod_uid: uid.to_owned(),
        doors,
        ..Default::default()
    }
}

fn taken(report: v1::Report) -> NodeReport {
    super::report(v1::Report { sequence: 1, ..report }).unwrap()
}

#[test]
fn ids_of_pods() {
    let check = |uid: &str, expected: Option<&str>| {
        let report = taken(v1::Report {
            entries: vec![entry(uid, vec![])],
            ..Default::default()
        });
        assert_eq!(report.entries[0].pod_uid.as_deref(), expected, "{uid}");
    };
    let uid = "0F3C0f3c-1111-4222-8333-0123456789ab";
    check(uid, Some(&uid.to_lowercase()));
    check("", None);
    check("a b", None);
    check("../../etc", None);
    check(&"a".repeat(65), None);
    check("ÿ", None);
}

#[test]
fn doors_without_sense_are_not_known() {
    let door = |last, port| v1::DoorCounts {
        address: address(last),
        port,
        source_class: v1::SourceClass::External.into(),
        opened: 5,
        established: 3,
        closed: 2,
    };
    let short = v1::DoorCounts {
        address: vec![1],
        ..door(1, 1)
    };
    let doors = vec![
        door(1, 443),
        door(1, 443),
        door(2, 443),
        door(1, 0),
        door(1, 70_000),
        short,
    ];
    let report = taken(v1::Report {
        entries: vec![entry("", doors)],
        ..Default::default()
    });
    let kept: Vec<(u8, u16, u64)> = report.entries[0]
        .doors
        .iter()
        .map(|(key, counts)| (key.address.octets()[15], key.port, counts.opened))
        .collect();
    assert_eq!(kept, [(1, 443, 5), (2, 443, 5)]);

    let many = (1..=2000).map(|port| door(1, port)).collect();
    let report = taken(v1::Report {
        entries: vec![entry("", many)],
        ..Default::default()
    });
    assert_eq!(report.entries[0].doors.len(), 256);
}

#[test]
fn ages_without_sense_are_not_known() {
    let check = |buckets: &[u32], flows: &[u64], expected: Option<&[(u8, u64)]>| {
        let mut entry = entry("", vec![]);
        entry.ages = Some(v1::FlowAges {
            read_at_ms: 7,
            buckets: buckets.to_vec(),
            flows: flows.to_vec(),
            unknown: 3,
        });
        let report = taken(v1::Report {
            entries: vec![entry],
            ..Default::default()
        });
        let found = report.entries[0].ages.as_ref();
        assert_eq!(found.map(|ages| &*ages.buckets), expected, "{buckets:?} {flows:?}");
        assert!(found.is_none_or(|ages| (ages.read_at_ms, ages.unknown) == (7, 3)));
    };
    check(&[], &[], Some(&[]));
    check(&[5, 163, 0], &[1, 2, 3], Some(&[(0, 3), (5, 1), (163, 2)]));
    check(&[5, 5, 6], &[u64::MAX, 1, 0], Some(&[(5, u64::MAX)]));
    check(&[164], &[1], None);
    check(&[256], &[1], None);
    check(&[1, 2], &[1], None);
}

#[test]
fn loads_attempts_and_degradations_are_checked() {
    let load = |uid: &str, cpu| v1::PodLoad {
        pod_uid: uid.to_owned(),
        cpu_usage_us: cpu,
        shares_network: true,
        ..Default::default()
    };
    let attempt = |last, reason: v1::UnservedReason| v1::Unserved {
        address: address(last),
        port: 443,
        protocol: v1::Protocol::Tcp.into(),
        reason: reason.into(),
        attempts: 9,
        source_class: v1::SourceClass::External.into(),
    };
    let degradation = |code: &str, sentence: &str| v1::Degradation {
        code: code.to_owned(),
        sentence: sentence.to_owned(),
    };
    let report = taken(v1::Report {
        pods: vec![
            load("p", Some(7)),
            load("p", Some(8)),
            load("", Some(1)),
            load("q", None),
        ],
        unserved: vec![
            attempt(1, v1::UnservedReason::Dropped),
            attempt(1, v1::UnservedReason::Dropped),
            attempt(1, v1::UnservedReason::Refused),
            attempt(1, v1::UnservedReason::Unspecified),
            // A probe of the kubelet: neither counted nor wrong.
            v1::Unserved {
                source_class: v1::SourceClass::Node.into(),
                ..attempt(2, v1::UnservedReason::Refused)
            },
        ],
        degradations: vec![
            degradation("udp", "no\r\nlines\u{1b}[31m"),
            degradation("Not a code", ""),
            degradation("", "x"),
            degradation("seeding", &"é".repeat(2000)),
        ],
        losses: Some(v1::Losses {
            recursion: 1,
            corrected: 2,
            unserved_full: 3,
            udp_flows_full: 4,
            activity_dropped: 5,
            ..Default::default()
        }),
        door_coverage: Some(v1::DoorCoverage {
            found: 1,
            not_found: 2,
            skipped: 3,
        }),
        ..Default::default()
    });
    let pods: Vec<(&str, Option<u64>)> = report
        .pods
        .iter()
        .map(|(uid, load)| (&**uid, load.cpu_usage_us))
        .collect();
    assert_eq!(pods, [("p", Some(7)), ("q", None)]);
    assert_eq!(report.unserved.len(), 2);
    assert_eq!(report.invalid_entries, 4);
    let codes: Vec<(&str, usize)> = report
        .degradations
        .iter()
        .map(|found| (found.code.as_str(), found.sentence.chars().count()))
        .collect();
    assert_eq!(codes, [("seeding", 512), ("udp", 11)]);
    assert_eq!(report.degradations[1].sentence, "nolines[31m");
    let losses = report.losses;
    assert_eq!(
        (
            losses.recursion,
            losses.corrected,
            losses.unserved_full,
            losses.udp_flows_full,
            losses.activity_dropped
        ),
        (1, 2, 3, 4, 5)
    );
    assert_eq!(report.door_coverage.skipped, 3);

    let many = (0..100).map(|n| degradation(&format!("code-{n}"), "")).collect();
    let report = taken(v1::Report {
        degradations: many,
        ..Default::default()
    });
    assert_eq!(report.degradations.len(), 16);
}

#[test]
fn a_greeting_says_how_counting_began() {
    let hello = |origin: i32| {
        super::hello(v1::Hello {
            node: "a".to_owned(),
            abi_version: 3,
            origin,
            ..Default::default()
        })
        .unwrap()
    };
    assert_eq!(
        (hello(v1::Origin::Migrated.into()).origin, hello(0).abi_version),
        (Origin::Migrated, 3)
    );
    assert_eq!(hello(99).origin, Origin::Unknown, "of a newer agent");
}
