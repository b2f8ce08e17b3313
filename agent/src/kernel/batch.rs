//! Reads a hash map whole: in, a map; out, each entry. Reading key by key would begin anew at each key that is removed under the
//! reader; this goes bucket by bucket (since Linux 5.6). The loader library cannot, so this file speaks to the kernel itself.
#![expect(unsafe_code, reason = "calls bpf(2), for which there is no safe function")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use aya::Pod;

/// Command of bpf(2), from `linux/bpf.h`.
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;
/// Entries that are read at once. A bucket that holds more makes it grow.
const BATCH: usize = 4_096;

/// `bpf_attr.batch`.
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Calls `visit` with each entry of a hash map. Entries that come or go meanwhile may be missed; none is seen twice unless it
/// was removed and came again.
pub fn visit<K: Pod + Default, V: Pod + Default>(map: BorrowedFd<'_>, visit: &mut dyn FnMut(&K, &V)) -> io::Result<()> {
    let fd = u32::try_from(map.as_raw_fd()).map_err(io::Error::other)?;
    let mut keys = vec![K::default(); BATCH];
    let mut values = vec![V::default(); BATCH];
    // Where the next batch begins, as the kernel names it: an opaque word.
    let (mut from, mut next) = (None::<u64>, 0_u64);
    loop {
        let mut batch = Batch {
            in_batch: from.as_ref().map_or(0, |from| std::ptr::from_ref(from).addr() as u64),
            out_batch: (&raw mut next).addr() as u64,
            keys: keys.as_mut_ptr().addr() as u64,
            values: values.as_mut_ptr().addr() as u64,
            count: u32::try_from(keys.len()).map_err(io::Error::other)?,
            map: fd,
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: the kernel reads and writes the attributes, which outlive the call; it writes at most `count` keys and values,
        // which is how many there is room for, and the word of the next batch.
        let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, &raw mut batch, size_of::<Batch>()) };
        let last = if result < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT) => true,
                Some(libc::ENOSPC) => {
                    keys.resize(keys.len() * 2, K::default());
                    values.resize(values.len() * 2, V::default());
                    continue;
                }
                _ => return Err(error),
            }
        } else {
            false
        };
        for (key, value) in keys.iter().zip(&values).take(batch.count as usize) {
            visit(key, value);
        }
        if last {
            return Ok(());
        }
        from = Some(next);
    }
}
