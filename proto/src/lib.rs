//! The gRPC contract between agents and aggregator, as generated from `flowskew/v1/collector.proto`; the comments there
//! are the documentation. And what both sides must compute alike.
#![forbid(unsafe_code)]

pub mod ages;

/// Version 1 of the contract.
#[expect(
    missing_docs,
    reason = "generated; the comments are in the proto file, not each item has one"
)]
pub mod v1 {
    tonic::include_proto!("flowskew.v1");
}
