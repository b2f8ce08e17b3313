//! Ctrl-C and SIGTERM. Signals enter; the first lets the run clean up, the second ends the process at once.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code after an interrupt, as shells expect it.
pub const EXIT_CODE: u8 = 130;

/// Tells whether the run has been asked to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<bool>);

/// The run was stopped from outside.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// The terminal may be gone, which is what a hangup means: then nobody is told, and the run ends all the same.
fn say(sentence: &str) {
    let _gone = writeln!(std::io::stderr(), "\n{sentence}");
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn listen() -> anyhow::Result<Self> {
        let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .into_iter()
            .map(signal)
            .collect::<Result<Vec<_>, _>>()
            .context("cannot catch Ctrl-C and SIGTERM")?;
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let next = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
                futures::future::select_all(next).await;
                if stop.send_replace(true) {
                    say("Interrupted again: not cleaning up. Run `flowskew-lab clean` later.");
                    std::process::exit(EXIT_CODE.into());
                }
                say("Interrupted: cleaning up. Press Ctrl-C again to leave at once.");
            }
        });
        Ok(Self(stopped))
    }

    /// True once the run has been asked to stop.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the run is asked to stop.
    pub async fn stopped(&self) {
        let mut stopped = self.0.clone();
        if stopped.wait_for(|stopped| *stopped).await.is_err() {
            // The listener lives as long as the runtime.
            std::future::pending::<()>().await;
        }
    }

    /// Does `work`, unless the run is asked to stop first.
    ///
    /// # Errors
    /// [`Interrupted`], or what `work` says.
    pub async fn or<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            () = self.stopped() => Err(Interrupted.into()),
            result = work => result,
        }
    }
}
