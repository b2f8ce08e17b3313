//! One virtual machine. In: a boot image, a file system, a time limit. Out: what each test came to, while it runs and at the
//! end; the kernel's console is in a file.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::event::{Event, Outcome};
use super::unpack::Unpacked;
use crate::shell;

/// The program, of the package qemu-system-x86.
pub const QEMU: &str = "qemu-system-x86_64";
/// The longest that a machine may run.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// The longest that it may be silent: more than a test may take.
const SILENCE: Duration = Duration::from_secs(360);

/// A test that was planned, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct TestRun {
    /// PROGRAM::TEST.
    pub name: String,
    /// How it ended; nothing when the machine ended first.
    pub outcome: Option<Outcome>,
    /// What it wrote; passed on for tests that failed.
    pub output: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
}

/// A machine that ran.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Seconds from the start of the kernel to that of the first process.
    pub boot: f64,
    /// Seconds from the start of the machine to its end.
    pub total: f64,
    /// All tests, in their order.
    pub tests: Vec<TestRun>,
    /// Why the machine ended before all tests did; nothing when it did not.
    pub broken: Option<String>,
    /// Where the console is.
    pub console: PathBuf,
}

/// Starts the machine, shows the tests as they end, and waits for its end.
pub fn run(name: &str, kernel: &Unpacked, initramfs: &Path, folder: &Path) -> Result<Run> {
    let console = folder.join("console.log");
    let mut command = command(kernel, initramfs, &console);
    let shown = shell::display(&command);
    let start = Instant::now();
    let mut child = Guard(command.spawn().with_context(|| format!("cannot start `{shown}`"))?);
    let output = child.0.stdout.take().context("the machine has no output")?;
    let (sender, receiver) = mpsc::channel();
    // Ends with the machine, which closes the line.
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut run = Run {
        console,
        ..Run::default()
    };
    let mut done = false;
    loop {
        let left = LIMIT.saturating_sub(start.elapsed()).min(SILENCE);
        match receiver.recv_timeout(left) {
            Ok(line) => {
                if let Some(event) = Event::parse(&String::from_utf8_lossy(&line)) {
                    done |= event == Event::Done;
                    run.take(name, event);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                run.broken = Some(format!(
                    "the machine was stopped: no event for {} s, or {} min in all",
                    SILENCE.as_secs(),
                    LIMIT.as_secs() / 60
                ));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                if !done {
                    run.broken = Some("the machine ended before its tests".to_owned());
                }
                break;
            }
        }
    }
    run.total = start.elapsed().as_secs_f64();
    Ok(run)
}

/// A machine without anything that the tests do not need, and without the host's help in running it.
fn command(kernel: &Unpacked, initramfs: &Path, console: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command
        .args(["-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max,la57=off"])
        .args([
            "-smp",
            "2",
            "-m",
            "1024",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ])
        .args(["-display", "none", "-serial", &format!("file:{}", console.display())])
        .args(["-chardev", "stdio,id=events,signal=off", "-serial", "chardev:events"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", COMMAND_LINE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// A panic ends the machine. What follows the dashes goes to the first process.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 mitigations=off PATH=/usr/bin -- vm-init";

/// Ends the machine with us, whatever happens.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It has ended already, or it is to end now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    fn take(&mut self, name: &str, event: Event) {
        match event {
            Event::Up(seconds) => {
                self.boot = seconds;
                println!("{name:<7} booted in {seconds:.1} s");
            }
            Event::Planned(name) => self.tests.push(TestRun {
                name,
                outcome: None,
                output: Vec::new(),
                seconds: 0.0,
            }),
            Event::Started(test) => {
                print!("{name:<7} {test} ... ");
                // Nothing is lost when the terminal is slow to show it.
                let _ = std::io::stdout().flush();
            }
            Event::Output(line) => {
                if let Some(test) = self.current() {
                    test.output.push(line);
                }
            }
            Event::Ended(outcome, seconds) => {
                println!("{} ({seconds:.1} s)", outcome.word());
                if let Some(test) = self.current() {
                    test.outcome = Some(outcome);
                    test.seconds = seconds;
                }
            }
            Event::Done => {}
        }
    }

    /// The test that runs: tests run in the order in which they were planned.
    fn current(&mut self) -> Option<&mut TestRun> {
        self.tests.iter_mut().find(|test| test.outcome.is_none())
    }

    /// The last lines of the console.
    pub fn console_tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Lines of the console in which the kernel complains about itself.
    pub fn kernel_complaints(&self) -> Vec<String> {
        let text = std::fs::read(&self.console).unwrap_or_default();
        complaints(&String::from_utf8_lossy(&text))
    }
}

fn complaints(console: &str) -> Vec<String> {
    const SIGNS: [&str; 6] = [
        "BUG:",
        "Oops",
        "WARNING: ",
        "general protection",
        "Kernel panic",
        "unable to handle",
    ];
    console
        .lines()
        .filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_results_in_order() {
        let mut run = Run::default();
        for event in [
            Event::Up(3.0),
            Event::Planned("a".into()),
            Event::Planned("b".into()),
            Event::Planned("c".into()),
            Event::Started("a".into()),
            Event::Ended(Outcome::Passed, 1.0),
            Event::Started("b".into()),
            Event::Output("line".into()),
            Event::Ended(Outcome::Failed("exit status: 101".into()), 2.0),
        ] {
            run.take("6.1", event);
        }
        let outcomes: Vec<_> = run.tests.iter().map(|test| test.outcome.clone()).collect();
        let failed = Outcome::Failed("exit status: 101".into());
        assert_eq!(outcomes, [Some(Outcome::Passed), Some(failed), None]);
        assert_eq!(run.tests[1].output, ["line"]);
        assert_eq!(run.boot, 3.0);
    }

    #[test]
    fn the_kernels_complaints_are_found() {
        let console = "[1.0] Linux version\n[2.0] WARNING: CPU: 1 PID: 3 at net/x.c\r\n[3.0] BUG: soft lockup\n";
        assert_eq!(
            complaints(console),
            ["[2.0] WARNING: CPU: 1 PID: 3 at net/x.c", "[3.0] BUG: soft lockup"]
        );
    }
}
