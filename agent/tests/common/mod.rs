//! What tests of the kernel programs need of the machine.

use flowskew_agent::kernel::object;
use rustix::process::geteuid;

/// Whether programs can be loaded here; if not, the reason is printed.
pub fn can_load_programs() -> bool {
    if !geteuid().is_root() {
        eprintln!("skipped: not root");
        return false;
    }
    if let Err(error) = object::embedded() {
        eprintln!("skipped: {error}");
        return false;
    }
    true
}
