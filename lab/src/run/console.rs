//! What people see while a scenario runs. Sentences enter; lines on standard output leave, or nothing when quiet.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// On a terminal a line of progress is redrawn this often at most.
const REDRAW: Duration = Duration::from_millis(150);

/// Where progress goes.
#[derive(Debug)]
pub struct Console {
    started: Instant,
    quiet: bool,
    /// A line is drawn over again only where that works.
    redraws: bool,
    drawn: Option<Instant>,
    /// The last line is empty.
    spaced: bool,
}

impl Console {
    /// Everything is shown.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            quiet: false,
            redraws: std::io::stdout().is_terminal(),
            drawn: None,
            spaced: true,
        }
    }

    /// Nothing is shown.
    pub fn quiet() -> Self {
        Self {
            quiet: true,
            ..Self::new()
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// One sentence about what happens now, with the time.
    pub fn step(&mut self, sentence: &str) {
        self.print(&format!(
            "[{:6.1} s] {sentence}\n",
            self.started.elapsed().as_secs_f64()
        ));
        self.drawn = None;
    }

    /// How far the current step is; the next line replaces it.
    pub fn progress(&mut self, state: &str) {
        if !self.redraws || self.drawn.is_some_and(|at| at.elapsed() < REDRAW) {
            return;
        }
        self.print(&format!("\r\x1b[K           {state}"));
        self.drawn = Some(Instant::now());
    }

    /// Ends the progress of a step with its result.
    pub fn result(&mut self, state: &str) {
        let begin = if self.redraws { "\r\x1b[K" } else { "" };
        self.print(&format!("{begin}           {state}\n"));
    }

    /// Text as it is, with empty lines around it.
    pub fn text(&mut self, text: &str) {
        let begin = if self.spaced { "" } else { "\n" };
        self.print(&format!("{begin}{}\n\n", text.trim_end()));
        self.spaced = true;
    }

    fn print(&mut self, text: &str) {
        self.drawn = None;
        self.spaced = false;
        if self.quiet {
            return;
        }
        let mut out = std::io::stdout().lock();
        // Nobody to tell when standard output is closed; the exit code still tells the result.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}
