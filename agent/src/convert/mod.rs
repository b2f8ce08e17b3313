//! Between the contract and the agent's own types: the only folder of the agent that knows the wire format of each.

use flowskew_agent_ebpf::{PROTOCOL_TCP, PROTOCOL_UDP, source_class};
use flowskew_proto::v1;

use crate::kernel::Origin;

mod activity;
mod assignment;
mod report;

pub use assignment::assignment;
pub use report::{losses, report};

/// How the counters began, as the contract has it.
pub fn origin(origin: Origin) -> v1::Origin {
    match origin {
        Origin::Fresh => v1::Origin::Fresh,
        Origin::Adopted => v1::Origin::Adopted,
        Origin::Upgraded => v1::Origin::Upgraded,
        Origin::Migrated => v1::Origin::Migrated,
    }
}

fn source_class_to_proto(class: u8) -> v1::SourceClass {
    match class {
        source_class::EXTERNAL => v1::SourceClass::External,
        source_class::POD => v1::SourceClass::Pod,
        source_class::NODE => v1::SourceClass::Node,
        _ => v1::SourceClass::Unspecified,
    }
}

fn protocol_to_proto(protocol: u8) -> v1::Protocol {
    match protocol {
        PROTOCOL_TCP => v1::Protocol::Tcp,
        PROTOCOL_UDP => v1::Protocol::Udp,
        _ => v1::Protocol::Unspecified,
    }
}
