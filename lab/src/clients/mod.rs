//! Clients of the Service: in, requests to open and close flows; out, exact counts of what happened to each of them.
//!
//! Processes in the clients' namespace hold the flows: one, or a few where a process may not open enough files. The lab
//! talks to them in lines of JSON (`protocol.rs`) through [`Clients`]. A flow counts as opened when the pod's name has
//! arrived, and belongs to that pod. Over UDP a flow is one client port: it opens with the answer to its first datagram,
//! and closes when the client sends no more.

mod connection;
mod flow;
mod handle;
mod ledger;
mod order;
mod process;
mod protocol;
mod worker;

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::runtime;

pub use self::{
    handle::Clients,
    protocol::{CloseFlows, CloseHow, Counts, Lifetime, OpenFlows, OpenSummary, Pick, Reconnect},
};
use crate::net::{
    Protocol,
    child::{self, Place},
};

/// Where flows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Address and port.
    pub address: SocketAddr,
}

/// Arguments of the `clients` subcommand.
#[derive(Debug, clap::Args)]
pub struct ClientsArgs {
    /// TCP or UDP.
    #[arg(long)]
    protocol: Protocol,
    /// Address and port of the Service.
    #[arg(long)]
    target: SocketAddr,
    /// Number of the port that each source address begins with, from 0.
    #[arg(long)]
    start: u16,
    #[command(flatten)]
    place: Place,
}

/// Serves requests from standard input until it ends. Must be called before the process has a second thread.
///
/// # Errors
/// The place cannot be entered, or the lab sends something that is not a request.
pub fn main(args: ClientsArgs) -> Result<()> {
    args.place.enter()?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let target = Target {
            protocol: args.protocol,
            address: args.target,
        };
        worker::Worker::new(target, args.start, child::to_parent()?)
            .run(child::from_parent()?)
            .await
    })
}
