//! Progress on standard error: in, the name of each step when it begins; out, one line that is rewritten on a terminal, and
//! one line a part elsewhere.

use std::{
    cell::{Cell, RefCell},
    io::{IsTerminal, Write, stderr},
    time::Instant,
};

/// Counts steps.
#[derive(Debug)]
pub struct Progress {
    steps: usize,
    begun: Cell<usize>,
    part: RefCell<String>,
    start: Instant,
    terminal: bool,
}

impl Progress {
    /// For that many steps.
    pub fn new(steps: usize) -> Self {
        Self {
            steps,
            begun: Cell::new(0),
            part: RefCell::default(),
            start: Instant::now(),
            terminal: stderr().is_terminal(),
        }
    }

    /// A step begins. `part` is what several steps share.
    pub fn step(&self, part: &str, what: &str) {
        let done = self.begun.replace(self.begun.get() + 1);
        let percent = 100 * done / self.steps.max(1);
        let seconds = self.start.elapsed().as_secs();
        // Progress is not worth an error.
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[K[{percent:>3} %, {seconds} s] {part}: {what}");
        } else if *self.part.borrow() != part {
            let _ = writeln!(stderr(), "[{percent:>3} %, {seconds} s] {part}");
        }
        part.clone_into(&mut self.part.borrow_mut());
    }

    /// All steps are over.
    pub fn done(&self) {
        let end = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(stderr(), "{end}[100 %, {} s] done", self.start.elapsed().as_secs());
    }
}
