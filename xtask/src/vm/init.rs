//! The first process of a virtual machine. In: a file system in memory with the tests. Out: a file system tree as a node has
//! it, each test run by itself, its result as a line on the second serial line, and the end of the machine.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::event::{Event, Outcome};
use super::limits;

/// Folder of the test programs.
pub const TESTS: &str = "/tests";
/// The agent.
pub const AGENT: &str = "/flowskew-agent";
/// A file with a part of the names of the tests to run.
pub const FILTER: &str = "/filter";

/// The second serial line.
const EVENTS: &str = "/dev/ttyS1";
/// What a test wrote.
const OUTPUT: &str = "/tmp/output";
/// The longest that a test may take.
const TEST_LIMIT: Duration = Duration::from_secs(300);
/// The most of a test's output that is passed on, from its end.
const OUTPUT_LIMIT: u64 = 24 * 1024;
/// The name under which the agent's own check of the machine is listed.
pub const CHECK: &str = "check";

/// Kinds of file systems and their places.
const MOUNTS: [(&str, &str); 7] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
    ("tracefs", "/sys/kernel/tracing"),
    ("tmpfs", "/tmp"),
];

/// What a node with kube-proxy has loaded. The rest is loaded when it is first used.
const MODULES: [&str; 5] = ["nf_conntrack", "nf_conntrack_netlink", "nf_tables", "veth", "tcp_diag"];

/// Runs all and ends the machine. Returns only when that failed.
pub fn run() -> Result<()> {
    let result = serve();
    if let Err(error) = &result {
        println!("init: {error:#}");
    }
    // The machine is set to end rather than to start again.
    fs::write("/proc/sysrq-trigger", "b").context("cannot end the machine")?;
    result
}

fn serve() -> Result<()> {
    for (kind, place) in MOUNTS {
        mount(kind, place)?;
    }
    let mut events = File::options()
        .write(true)
        .open(EVENTS)
        .with_context(|| format!("cannot open {EVENTS}"))?;
    let mut say = |event: Event| writeln!(events, "{event}").context("cannot write an event");
    say(Event::Up(uptime()?))?;
    for module in MODULES {
        if let Err(error) = succeed(Command::new("modprobe").arg(module)) {
            println!("init: {error:#}");
        }
    }
    succeed(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let tests = tests(&fs::read_to_string(FILTER).unwrap_or_default())?;
    for test in &tests {
        say(Event::Planned(test.clone()))?;
    }
    for test in tests {
        say(Event::Started(test.clone()))?;
        let start = Instant::now();
        let outcome = run_test(&test).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if test == CHECK || matches!(outcome, Outcome::Failed(_)) {
            for line in output()?.lines() {
                say(Event::Output(line.to_owned()))?;
            }
        }
        say(Event::Ended(outcome, start.elapsed().as_secs_f64()))?;
    }
    say(Event::Done)
}

fn mount(kind: &str, place: &str) -> Result<()> {
    succeed(Command::new("mount").args(["-t", kind, kind, place]))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Seconds since the kernel started.
fn uptime() -> Result<f64> {
    let text = fs::read_to_string("/proc/uptime").context("cannot read /proc/uptime")?;
    let seconds = text.split_whitespace().next().context("/proc/uptime is empty")?;
    seconds.parse().context("/proc/uptime holds no number")
}

/// The names of all tests, as PROGRAM::TEST.
fn tests(filter: &str) -> Result<Vec<String>> {
    let mut programs = Vec::new();
    for entry in fs::read_dir(TESTS).with_context(|| format!("cannot read {TESTS}"))? {
        programs.push(entry?.file_name().to_string_lossy().into_owned());
    }
    programs.sort();
    let mut tests = vec![CHECK.to_owned()];
    for program in programs {
        let output = Command::new(Path::new(TESTS).join(&program))
            .args(["--list", "--format", "terse"])
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        if !output.status.success() {
            bail!("{program} does not list its tests: {}", output.status);
        }
        tests.extend(listed(&program, &String::from_utf8_lossy(&output.stdout)));
    }
    tests.retain(|test| test.contains(filter));
    Ok(tests)
}

/// The tests in what libtest lists: lines `NAME: test`.
fn listed(program: &str, text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(|name| format!("{program}::{name}"))
        .collect()
}

fn run_test(test: &str) -> Result<Outcome> {
    if let Some(reason) = limits::not_run(test) {
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let mut command = match test.split_once("::") {
        Some((program, name)) => {
            let mut command = Command::new(Path::new(TESTS).join(program));
            command.args([name, "--exact", "--test-threads=1", "--nocapture"]);
            command
        }
        None => {
            let mut command = Command::new(AGENT);
            command.arg("check");
            command
        }
    };
    let file = File::create(OUTPUT).with_context(|| format!("cannot write {OUTPUT}"))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start {test}"))?;
    let end = Instant::now() + TEST_LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(outcome(test, status, &output()?));
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(Outcome::Failed(format!("took more than {} s", TEST_LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn outcome(test: &str, status: ExitStatus, output: &str) -> Outcome {
    if !status.success() {
        return Outcome::Failed(status.to_string());
    }
    if let Some(reason) = output.lines().find_map(|line| skip_reason(line)) {
        return Outcome::Skipped(reason.to_owned());
    }
    if test != CHECK && !output.contains(" 1 passed") {
        return Outcome::Skipped("not run unless it is asked for".to_owned());
    }
    Outcome::Passed
}

/// What a test says that cannot run: on a line of its own, or behind the words with which its run was announced.
fn skip_reason(line: &str) -> Option<&str> {
    let (before, reason) = line.split_once("skipped: ")?;
    let announced = before.starts_with("test ") && before.ends_with(" ... ");
    (before.is_empty() || announced).then_some(reason)
}

/// The end of what the test wrote.
fn output() -> Result<String> {
    let mut file = File::open(OUTPUT).with_context(|| format!("cannot read {OUTPUT}"))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_LIMIT)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn tests_are_listed_by_program() {
        assert_eq!(
            listed("pins", "a_test: test\nb: benchmark\n\n1 test\n"),
            ["pins::a_test"]
        );
    }

    #[test]
    fn a_skipped_test_is_no_passed_one() {
        let passed = "running 1 test\n\ntest result: ok. 1 passed; 0 failed\n";
        let (good, bad) = (ExitStatus::from_raw(0), ExitStatus::from_raw(101 << 8));
        assert_eq!(outcome("a::b", good, passed), Outcome::Passed);
        let skipped = format!("skipped: no IPVS\n{passed}");
        assert_eq!(outcome("a::b", good, &skipped), Outcome::Skipped("no IPVS".into()));
        let announced = format!("test b ... skipped: no IPVS\nok\n{passed}");
        assert_eq!(outcome("a::b", good, &announced), Outcome::Skipped("no IPVS".into()));
        let other = format!("test b ... 3 packets were skipped: fine\nok\n{passed}");
        assert_eq!(outcome("a::b", good, &other), Outcome::Passed);
        assert!(matches!(outcome("a::b", bad, &skipped), Outcome::Failed(_)));
        let ignored = "test result: ok. 0 passed; 0 failed; 1 ignored\n";
        assert!(matches!(outcome("a::b", good, ignored), Outcome::Skipped(_)));
        assert_eq!(outcome(CHECK, good, "ok"), Outcome::Passed);
    }
}
