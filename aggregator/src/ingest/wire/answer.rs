//! Acknowledgements and assignments as the wire has them.

use flowskew_proto::v1;

use crate::assignment::Assignment;
use crate::clients::ClientKey;
use crate::flow::{EndpointKey, Protocol, SourceClass};

/// Acknowledges a report.
pub fn ack(epoch: u64, sequence: u64) -> v1::AggregatorMessage {
    message(v1::aggregator_message::Message::Ack(v1::Ack { epoch, sequence }))
}

/// Sends an assignment.
pub fn assignment(assignment: &Assignment) -> v1::AggregatorMessage {
    let endpoints = assignment.endpoints.iter().map(|key| v1::AssignedEndpoint {
        address: key.address.octets().to_vec(),
        port: key.port.into(),
        protocol: protocol(key.protocol),
    });
    let prefixes = assignment.prefixes.iter().map(|prefix| v1::ClassPrefix {
        address: prefix.network.addr().octets().to_vec(),
        prefix_length: prefix.network.prefix_len().into(),
        source_class: match prefix.class {
            SourceClass::External => v1::SourceClass::External,
            SourceClass::Pod => v1::SourceClass::Pod,
            SourceClass::Node => v1::SourceClass::Node,
            SourceClass::Unclassified => v1::SourceClass::Unspecified,
        }
        .into(),
    });
    message(v1::aggregator_message::Message::Assignment(v1::Assignment {
        version: assignment.version,
        endpoints: endpoints.collect(),
        prefixes: prefixes.collect(),
        report_interval_ms: assignment.report_interval_ms,
        front_doors: assignment.front_doors().map(front_door).collect(),
        client_keys: assignment.client_keys.iter().map(client_key).collect(),
    }))
}

fn client_key(key: &ClientKey) -> v1::ClientKey {
    v1::ClientKey {
        id: key.id,
        key: key.key.to_vec(),
    }
}

fn front_door(door: EndpointKey) -> v1::FrontDoor {
    v1::FrontDoor {
        address: door.address.octets().to_vec(),
        port: door.port.into(),
        protocol: protocol(door.protocol),
    }
}

fn protocol(protocol: Protocol) -> i32 {
    match protocol {
        Protocol::Tcp => v1::Protocol::Tcp,
        Protocol::Udp => v1::Protocol::Udp,
    }
    .into()
}

fn message(message: v1::aggregator_message::Message) -> v1::AggregatorMessage {
    v1::AggregatorMessage { message: Some(message) }
}
