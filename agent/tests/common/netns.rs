//! Network namespaces that a test has made.

use std::{fs::File, os::fd::AsFd, path::Path, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs something on a thread inside the namespace of this file.
pub fn within<T: Send>(path: &Path, task: impl FnOnce() -> T + Send) -> T {
    let file = File::open(path).expect("the namespace");
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("entered");
            task()
        });
        thread.join().expect("no panic")
    })
}
