//! Clients of the Service: in, requests to open and close flows; out, exact counts of what happened to each of them.
//!
//! Processes in the clients' namespace hold the flows: one, or a few where a process may not open enough files. The lab
//! talks to them in lines of JSON (`protocol.rs`) through [`Clients`]. A flow counts as opened when the pod's name has
//! arrived, and belongs to that pod.

mod flow;
mod handle;
mod ledger;
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
use crate::net::child::{self, Place};

/// Arguments of the `clients` subcommand.
#[derive(Debug, clap::Args)]
pub struct ClientsArgs {
    /// Address and port of the Service.
    #[arg(long)]
    target: SocketAddr,
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
        worker::Worker::new(args.target, child::to_parent()?)
            .run(child::from_parent()?)
            .await
    })
}
