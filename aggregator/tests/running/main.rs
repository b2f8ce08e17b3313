//! Tests of a whole running aggregator, in this process: real gRPC, real HTTP, and an API server that can misbehave.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod activity;
mod api;
mod beside;
mod cluster_watch;
mod common;
mod ingest;
