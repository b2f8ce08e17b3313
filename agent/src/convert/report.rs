//! In, an observation; out, a report as the contract has it.

use flowskew_agent_ebpf::{ClassCounts, LedgerKey, LedgerValue, UnservedKey, close_cause, unserved_reason};
use flowskew_proto::v1;

use super::{activity::activity, protocol_to_proto, source_class_to_proto};
use crate::{
    clients::{Activity, ages::FlowAges},
    degradation::Degradation,
    doors::{DoorCounts, Snapshot as DoorSnapshot},
    kernel::KernelLosses,
    observer::Observation,
    pods::PodLoad,
};

/// A report without its number and its losses.
pub fn report(observation: &Observation, happened: Activity) -> v1::Report {
    let doors = observation.doors.as_ref();
    v1::Report {
        taken_at_ms: observation.kernel.taken_at_ms,
        entries: observation
            .kernel
            .entries
            .iter()
            .map(|(key, value)| v1::LedgerEntry {
                pod_uid: observation
                    .pods
                    .get(&key.cgroup_id)
                    .map_or_else(String::new, |pod| pod.uid.clone()),
                doors: doors
                    .and_then(|doors| doors.doors.get(key))
                    .map_or_else(Vec::new, |counts| counts.iter().map(door).collect()),
                ages: (observation.ages.flows.get(key)).map(|found| ages(found, observation.ages.read_at_ms)),
                ..ledger_entry(key, value)
            })
            .collect(),
        pods: observation.loads.iter().map(load).collect(),
        unserved: observation
            .kernel
            .unserved
            .iter()
            .map(|(key, attempts)| unserved(key, *attempts))
            .collect(),
        door_coverage: doors.map(coverage),
        degradations: observation.degradations.iter().map(degradation).collect(),
        activity: activity(happened, observation.kernel.taken_at_ms),
        ..v1::Report::default()
    }
}

/// A ledger entry as the contract has it. Classes that have never counted are left out.
fn ledger_entry(key: &LedgerKey, value: &LedgerValue) -> v1::LedgerEntry {
    let mut classes = Vec::new();
    for (class, counts) in (0..).zip(&value.classes) {
        if counts == &ClassCounts::default() {
            continue;
        }
        classes.push(v1::ClassCounts {
            source_class: source_class_to_proto(class).into(),
            opened: counts.opened,
            // A flow that closes on one CPU while it opens on another can be seen as below zero for a moment.
            established: u64::try_from(counts.established).unwrap_or(0),
            seeded: counts.seeded,
            closed: (0..)
                .zip(counts.closed)
                .filter(|&(_, count)| count > 0)
                .map(|(cause, count)| v1::CauseCount {
                    cause: close_cause_to_proto(cause).into(),
                    count,
                })
                .collect(),
        });
    }
    v1::LedgerEntry {
        address: key.address.to_vec(),
        port: key.port.into(),
        protocol: protocol_to_proto(key.protocol).into(),
        cgroup_id: key.cgroup_id,
        classes,
        ..Default::default()
    }
}

fn ages(ages: &FlowAges, read_at_ms: u64) -> v1::FlowAges {
    v1::FlowAges {
        read_at_ms,
        buckets: ages.buckets.keys().copied().collect(),
        flows: ages.buckets.values().copied().collect(),
        unknown: ages.unknown,
    }
}

fn door(counts: &DoorCounts) -> v1::DoorCounts {
    v1::DoorCounts {
        address: counts.address.to_vec(),
        port: counts.port.into(),
        source_class: source_class_to_proto(counts.source_class).into(),
        opened: counts.opened,
        established: counts.established,
        closed: counts.closed,
    }
}

fn coverage(doors: &DoorSnapshot) -> v1::DoorCoverage {
    v1::DoorCoverage {
        found: doors.coverage.found,
        not_found: doors.coverage.not_found,
        skipped: doors.coverage.skipped,
    }
}

fn load(load: &PodLoad) -> v1::PodLoad {
    v1::PodLoad {
        pod_uid: load.uid.clone(),
        cpu_usage_us: load.cpu_usage_us,
        cpu_throttled_us: load.cpu_throttled_us,
        listen_overflows: load.listen_overflows,
        listen_drops: load.listen_drops,
        syn_cookies_sent: load.syn_cookies_sent,
        shares_network: load.shares_network,
    }
}

/// Losses as the contract has them. What was dropped by the agent itself is counted since it started.
pub fn losses(kernel: KernelLosses, reports_dropped: u64, activity_dropped: u64) -> v1::Losses {
    v1::Losses {
        ring_full: kernel.ring_full,
        flows_full: kernel.flows_full,
        ledger_full: kernel.ledger_full,
        orphan_close: kernel.orphan_close,
        orphan_flow: kernel.orphan_flow,
        reports_dropped,
        recursion: kernel.recursion,
        corrected: kernel.corrected,
        unserved_full: kernel.unserved_full,
        udp_flows_full: kernel.udp_flows_full,
        activity_dropped,
    }
}

fn unserved(key: &UnservedKey, attempts: u64) -> v1::Unserved {
    v1::Unserved {
        address: key.dialled.address.to_vec(),
        port: key.dialled.port.into(),
        protocol: protocol_to_proto(key.dialled.protocol).into(),
        reason: match key.reason {
            unserved_reason::DROPPED => v1::UnservedReason::Dropped,
            unserved_reason::REFUSED => v1::UnservedReason::Refused,
            _ => v1::UnservedReason::Unspecified,
        }
        .into(),
        attempts,
        source_class: source_class_to_proto(key.source_class).into(),
    }
}

fn degradation(degradation: &Degradation) -> v1::Degradation {
    v1::Degradation {
        code: degradation.code.to_owned(),
        sentence: degradation.sentence.clone(),
    }
}

pub(super) fn close_cause_to_proto(cause: u8) -> v1::CloseCause {
    match cause {
        close_cause::CLIENT_FIN => v1::CloseCause::ClientFin,
        close_cause::SERVER_FIN => v1::CloseCause::ServerFin,
        close_cause::CLIENT_RST => v1::CloseCause::ClientRst,
        close_cause::SERVER_RST => v1::CloseCause::ServerRst,
        close_cause::TIMEOUT => v1::CloseCause::Timeout,
        _ => v1::CloseCause::Unspecified,
    }
}

#[cfg(test)]
mod tests {
    use flowskew_agent_ebpf::PROTOCOL_TCP;

    use super::*;

    const ADDRESS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];

    #[test]
    fn a_ledger_entry_carries_each_class_and_cause() {
        let key = LedgerKey {
            address: ADDRESS,
            cgroup_id: 7,
            port: 8883,
            protocol: PROTOCOL_TCP,
            padding: 0,
            padding_word: 0,
        };
        let mut value = LedgerValue::default();
        value.classes[1] = ClassCounts {
            opened: 5,
            established: 3,
            seeded: 1,
            closed: [0, 2, 0, 1, 0, 0],
        };
        value.classes[3] = ClassCounts {
            opened: 1,
            established: -1,
            seeded: 0,
            closed: [1, 0, 0, 0, 0, 0],
        };
        let entry = ledger_entry(&key, &value);
        assert_eq!(
            (entry.address.as_slice(), entry.port, entry.cgroup_id),
            (ADDRESS.as_slice(), 8883, 7)
        );
        assert_eq!(entry.protocol(), v1::Protocol::Tcp);
        let [external, node] = entry.classes.as_slice() else {
            panic!("two classes: {:?}", entry.classes)
        };
        assert_eq!(external.source_class(), v1::SourceClass::External);
        assert_eq!((external.opened, external.established, external.seeded), (5, 3, 1));
        let closed: Vec<_> = external
            .closed
            .iter()
            .map(|closed| (closed.cause(), closed.count))
            .collect();
        assert_eq!(closed, [(v1::CloseCause::ClientFin, 2), (v1::CloseCause::ClientRst, 1)]);
        assert_eq!(node.source_class(), v1::SourceClass::Node);
        assert_eq!(node.established, 0, "a gauge is never negative");
    }
}
