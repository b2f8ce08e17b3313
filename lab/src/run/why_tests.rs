//! Tables: what a check expects of an explanation, what was seen, and the rows that do not hold.

use flowskew_aggregator::report::{
    Affinity, AffinityBreaks, AffinityCode, Cause, Clients, Confidence, Estimate, FindingCode, LoadRow, Persistence,
    Rank, Stickiness,
};

use super::super::client_truth::ClientTruth;
use super::super::evaluate::tests::{broken, seen as plain};
use super::super::observe::Observation;

fn about(value: f64, error: f64) -> Estimate {
    Estimate {
        value,
        low: value - error,
        high: value + error,
    }
}

fn stickiness(kappa: f64) -> Stickiness {
    Stickiness {
        pairs: 100,
        clients: 10,
        observed: 0.9,
        chance: 0.5,
        kappa: Some(about(kappa, 0.1)),
    }
}

/// All that can be explained is.
fn seen() -> Observation {
    let mut seen = plain();
    let report = &mut seen.report;
    let cause = |code, nats, share| Cause {
        code,
        nats,
        share: Some(share),
    };
    report.causes = vec![
        cause(Some(FindingCode::PlacementSkew), 0.097, 0.97),
        cause(None, 0.003, 0.03),
    ];
    report.established_causes = report.causes.clone();
    let finding = &mut report.findings[0];
    finding.sentence = "p shares a node".to_owned();
    finding.evidence = vec!["25 flows".to_owned()];
    finding.confidence = Confidence::High;
    report.affinity = Some(Affinity {
        code: AffinityCode::Broken,
        sentence: String::new(),
        pod_tier: Some(stickiness(0.2)),
        node_tier: Some(stickiness(0.95)),
        nodes: Vec::new(),
        breaks: Some(AffinityBreaks {
            pairs: 100,
            broken: 50,
            gone: 0,
            median_gap_seconds: Some(1.0),
            within_list: Rank { pairs: 10, broken: 0 },
            beyond_list: Rank { pairs: 90, broken: 50 },
            list_limit: true,
        }),
    });
    report.clients = Some(Clients {
        sampling_shift: 0,
        flows: 100,
        seen: 40,
        missing: 0,
        distinct: about(40.0, 4.0),
        effective: Some(about(20.0, 2.0)),
        top_share: Some(about(0.5, 0.02)),
        heaviest: Vec::new(),
        pinned_peak_ratio: None,
        shared_addresses: None,
    });
    report.persistence = Some(Persistence {
        flows: 90,
        before_change: Some(about(0.8, 0.1)),
        endpoints: Vec::new(),
        closes: 3,
        flow_hours: 1.0,
        hazard_per_hour: Some(about(3.0, 1.0)),
        target_peak_ratio: 1.1,
        hours_to_even: Some(2.5),
        hours_to_even_low: None,
        hours_to_even_high: None,
        left_on_gone: 7,
        sentence: String::new(),
    });
    for (endpoint, cores) in report.endpoints.iter_mut().zip([0.5, 1.5]) {
        endpoint.load = Some(LoadRow {
            seconds: 9.0,
            cpu_cores: Some(cores),
            throttled_share: None,
            listen_overflows: None,
            listen_drops: None,
            syn_cookies: None,
            shares_network: false,
        });
    }
    seen.clients = Some(ClientTruth {
        flows: 100,
        clients: 40,
        effective: 20.5,
        top_share: 0.5,
    });
    seen
}

#[test]
fn what_holds_holds() {
    let all = "
causes: {new: {placement-skew: {at_least: 95}, lb-uneven: {at_most: 0}}, established: {placement-skew: {at_most: 97}}}
says: [{code: placement-skew, confidence: high, words: [shares a node, 25 flows]}]
affinity: broken
affinity_list_limit: true
stickiness: {pods: {at_most: 0.2}, nodes: {at_least: 0.9}}
clients:
  distinct: {value: 41, within: 1}
  effective: {at_least: 20}
  top_share: {value: 50, within: 0}
  sampled: false
  exact: true
  covered: true
persistence: {before_change: {at_least: 80}, hours_to_even: {at_most: 2.5}, left_on_gone: 7}
cpu: {follows_shares: 0.1}
";
    assert_eq!(broken(all, &seen()), Vec::<String>::new());
}

#[test]
fn what_does_not_hold_is_told() {
    let table = [
        (
            "causes: {new: {placement-skew: {at_least: 98}}}",
            "placement-skew part of the skew, new: 97.000 %",
        ),
        (
            "causes: {established: {persistence: {at_least: 1}}}",
            "persistence part of the skew, established: 0.000 %",
        ),
        (
            "says: [{code: placement-skew, confidence: likely}]",
            "finding placement-skew: high: p shares a node",
        ),
        (
            "says: [{code: placement-skew, words: [p, q]}]",
            "finding placement-skew: high: p shares a node",
        ),
        ("says: [{code: even, words: [p]}]", "finding even: not there"),
        ("affinity: as-configured", "session affinity: broken"),
        ("affinity_list_limit: false", "broken by the limit of lists: yes"),
        ("stickiness: {pods: {at_least: 0.9}}", "stickiness to pods: 0.200"),
        ("stickiness: {nodes: {at_most: 0.1}}", "stickiness to nodes: 0.950"),
        ("clients: {distinct: {at_most: 39}}", "distinct clients: 40.000"),
        ("clients: {effective: {at_most: 19}}", "effective clients: 20.000"),
        ("clients: {top_share: {at_most: 49}}", "share of ten clients: 50.000 %"),
        ("clients: {sampled: true}", "clients are sampled: no"),
        (
            "persistence: {before_change: {at_most: 79}}",
            "established flows from before the change: 80.000 %",
        ),
        (
            "persistence: {hours_to_even: {at_least: 3}}",
            "hours until flows are even: 2.500",
        ),
        (
            "persistence: {hours_to_even: unknown}",
            "hours until flows are even: 2.500",
        ),
        (
            "persistence: {left_on_gone: 0}",
            "flows left on pods that are no endpoints: 7",
        ),
    ];
    for (yaml, expected) in table {
        assert_eq!(broken(yaml, &seen()), [expected], "{yaml}");
    }
}

#[test]
fn causes_that_do_not_add_up_are_told_without_being_asked() {
    let mut seen = seen();
    seen.report.causes[1].nats = 0.004;
    seen.report.established_causes.clear();
    assert_eq!(
        broken("{}", &seen),
        [
            "causes of the skew, new: 0.101000 nats",
            "causes of the skew, established: 0.000000 nats"
        ]
    );
    assert!(broken("causes_add_up: ignore", &seen).is_empty());
    seen.report.new.theil = None;
    seen.report.established.theil = None;
    assert!(broken("{}", &seen).is_empty());
}

#[test]
fn a_client_too_few_or_an_event_that_was_lost_is_not_exact() {
    type Damage = fn(&mut Clients);
    let table: [(Damage, &str); 3] = [
        (|clients| clients.seen = 39, "39 with 100 flows, 0 lost"),
        (|clients| clients.flows = 101, "40 with 101 flows, 0 lost"),
        (|clients| clients.missing = 1, "40 with 100 flows, 1 lost"),
    ];
    for (damage, got) in table {
        let mut seen = seen();
        damage(seen.report.clients.as_mut().unwrap());
        assert_eq!(
            broken("clients: {exact: true}", &seen),
            [format!("clients told one by one: {got}")]
        );
    }
}

#[test]
fn an_interval_covers_the_truth_when_it_is_widened_to_five_standard_deviations() {
    // 4 is 1.96 standard deviations; 10.2 is five.
    let mut seen = seen();
    let truth = seen.clients.as_mut().unwrap();
    truth.clients = 50;
    assert!(broken("clients: {covered: true}", &seen).is_empty());
    let truth = seen.clients.as_mut().unwrap();
    truth.clients = 51;
    truth.effective = 14.0;
    assert_eq!(
        broken("clients: {covered: true}", &seen),
        [
            "distinct clients by interval: 29.80 to 50.20",
            "effective clients by interval: 14.90 to 25.10"
        ]
    );
}

#[test]
fn cpu_is_compared_with_the_share_of_each_pod() {
    let mut seen = seen();
    let load = |seen: &mut Observation, cores| seen.report.endpoints[0].load.as_mut().unwrap().cpu_cores = cores;
    load(&mut seen, Some(0.6));
    assert!(broken("cpu: {follows_shares: 4}", &seen).is_empty());
    assert_eq!(
        broken("cpu: {follows_shares: 3}", &seen),
        ["CPU of each pod follows its share of new flows: p 28.6 % for 25.0 %, q 71.4 % for 75.0 %"]
    );
    load(&mut seen, None);
    assert_eq!(
        broken("cpu: {follows_shares: 99}", &seen),
        ["CPU of each pod follows its share of new flows: unknown"]
    );
}

#[test]
fn a_report_that_explains_nothing_fails_what_is_expected_of_it() {
    let mut seen = seen();
    seen.report.affinity = None;
    seen.report.clients = None;
    seen.report.persistence = None;
    let all = "
affinity: undetermined
affinity_list_limit: false
stickiness: {pods: {at_least: 0}}
clients: {sampled: false, exact: true, covered: true}
persistence: {hours_to_even: unknown, left_on_gone: 0}
";
    let broken = broken(all, &seen);
    assert_eq!(broken.len(), 3 + 5 + 2, "{broken:#?}");
    assert!(broken.iter().all(|row| row.ends_with(": unknown")), "{broken:#?}");
}
