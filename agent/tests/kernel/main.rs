//! The kernel programs on this machine's kernel, with real sockets on loopback. Needs root and the built-in object; each test
//! says so and passes when it cannot run.

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod flows;
mod full;
mod udp;
mod unserved;

use flowskew_agent::kernel::requirements;
use rustix::process::geteuid;

#[test]
fn nothing_is_missing_where_these_tests_run() {
    if !geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let all = requirements::all();
    assert!(
        all.iter()
            .all(|one| !matches!(one.state, requirements::State::Missing(_))),
        "{all:?}"
    );
}
