//! In, what single clients did; out, the same as the contract has it: columns, with each time told as the difference to the one
//! before it.

use flowskew_proto::v1;

use super::{protocol_to_proto, report::close_cause_to_proto};
use crate::clients::{Activity, Clock, Column, EndpointActivity, Event, HeavyClient};

/// The activity of a report that was taken at this time, milliseconds since 1970.
pub fn activity(happened: Activity, taken_at_ms: u64) -> Vec<v1::EndpointActivity> {
    let clock = happened.clock;
    (happened.endpoints.into_iter())
        .map(|endpoint| endpoint_activity(endpoint, clock, taken_at_ms))
        .collect()
}

fn endpoint_activity(happened: EndpointActivity, clock: Clock, taken_at_ms: u64) -> v1::EndpointActivity {
    let EndpointActivity {
        key,
        shift,
        events,
        columns,
    } = happened;
    let mut before = taken_at_ms;
    let at_ms = events.iter().map(|event| {
        // The wall clock may have been set back before the report was taken.
        let at = clock.wall_ms(event.at_ns).min(taken_at_ms);
        let since = at.wrapping_sub(before).cast_signed();
        before = at;
        since
    });
    v1::EndpointActivity {
        address: key.address.to_vec(),
        port: key.port.into(),
        protocol: protocol_to_proto(key.protocol).into(),
        cgroup_id: key.cgroup_id,
        sampling_shift: shift,
        at_ms: at_ms.collect(),
        kinds: events.iter().map(kind).collect(),
        lifetimes_ms: (events.iter())
            .filter(|event| event.cause.is_some())
            .map(lifetime_ms)
            .collect(),
        columns: columns.into_iter().map(column).collect(),
    }
}

fn kind(event: &Event) -> u32 {
    event.cause.map_or(0, |cause| {
        // The numbers of causes are not negative.
        1 + i32::from(close_cause_to_proto(cause)).unsigned_abs()
    })
}

fn lifetime_ms(event: &Event) -> u64 {
    match event.opened_at_ns {
        0 => 0,
        opened_at_ns => 1 + event.at_ns.saturating_sub(opened_at_ns) / 1_000_000,
    }
}

fn column(column: Column) -> v1::ClientColumn {
    v1::ClientColumn {
        key_id: column.key_id,
        clients: column.clients,
        distinct: column.distinct,
        heavy: column.heavy.iter().map(heavy).collect(),
    }
}

fn heavy(client: &HeavyClient) -> v1::HeavyClient {
    v1::HeavyClient {
        client: client.client,
        opened: client.opened,
        error: client.error,
        address: client.address.map_or_else(Vec::new, |address| address.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use flowskew_agent_ebpf::{LedgerKey, PROTOCOL_UDP, close_cause};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn event(at_ns: u64, opened_at_ns: u64, cause: Option<u8>) -> Event {
        Event {
            at_ns,
            opened_at_ns,
            client: [1; 16],
            cause,
        }
    }

    #[test]
    fn times_are_differences_and_lifetimes_are_of_closes_only() {
        let happened = Activity {
            clock: Clock::default(),
            endpoints: vec![EndpointActivity {
                key: LedgerKey {
                    port: 53,
                    protocol: PROTOCOL_UDP,
                    cgroup_id: 9,
                    ..LedgerKey::default()
                },
                shift: 3,
                events: vec![
                    event(7 * SECOND, 7 * SECOND, None),
                    event(8 * SECOND, 7 * SECOND, Some(close_cause::TIMEOUT)),
                    event(8 * SECOND, 0, Some(close_cause::OTHER)),
                    event(11 * SECOND, 11 * SECOND, None),
                ],
                columns: vec![Column {
                    key_id: 5,
                    clients: vec![1, 2, 3, 4],
                    distinct: vec![6],
                    heavy: vec![HeavyClient {
                        client: 1,
                        opened: 2,
                        error: 1,
                        address: None,
                    }],
                }],
            }],
        };
        let told = activity(happened, 10_000);
        let [told] = told.as_slice() else {
            panic!("one endpoint: {told:?}")
        };
        assert_eq!(told.at_ms, [-3_000, 1_000, 0, 2_000], "none after the report itself");
        let timeout = 1 + v1::CloseCause::Timeout as u32;
        assert_eq!(told.kinds, [0, timeout, 1, 0]);
        assert_eq!(told.lifetimes_ms, [1_001, 0]);
        assert_eq!((told.port, told.cgroup_id, told.sampling_shift), (53, 9, 3));
        assert_eq!(told.protocol(), v1::Protocol::Udp);
        let column = &told.columns[0];
        assert_eq!((column.key_id, column.distinct.as_slice()), (5, [6].as_slice()));
        assert_eq!(column.clients, [1, 2, 3, 4]);
        assert!(column.heavy[0].address.is_empty());
    }
}
