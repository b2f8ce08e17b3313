//! The kernel's times as people's: in, nanoseconds since boot; out, milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The wall clock against the time since boot, at one moment. Times that are converted with the same one keep their distances,
/// also when the wall clock is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// Wall clock of the boot, nanoseconds since 1970.
    booted_at_ns: u64,
}

impl Clock {
    /// As the clocks are now.
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // 64 bits hold nanoseconds until the year 2554.
        let now_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        Self {
            booted_at_ns: now_ns.saturating_sub(boot_ns()),
        }
    }

    /// The wall clock at this time since boot, milliseconds since 1970.
    pub fn wall_ms(self, boot_ns: u64) -> u64 {
        self.booted_at_ns.saturating_add(boot_ns) / 1_000_000
    }
}

/// Nanoseconds since boot, as the kernel programs tell the time.
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use crate::kernel::now_ms;

    use super::*;

    #[test]
    fn now_is_now_by_both_clocks() {
        let clock = Clock::now();
        let converted = clock.wall_ms(boot_ns());
        let difference = now_ms().abs_diff(converted);
        assert!(difference < 1_000, "{difference} ms apart");
        assert_eq!(clock.wall_ms(5_000_000_000) - clock.wall_ms(2_000_000_000), 3_000);
    }
}
