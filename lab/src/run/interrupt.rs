//! Ctrl-C and SIGTERM. Signals enter; the first lets the run clean up, the second ends the process at once.

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
                if *stop.borrow() {
                    eprintln!("\nInterrupted again: not cleaning up. Run `flowskew-lab clean` later.");
                    std::process::exit(EXIT_CODE.into());
                }
                eprintln!("\nInterrupted: cleaning up. Press Ctrl-C again to leave at once.");
                stop.send_replace(true);
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
