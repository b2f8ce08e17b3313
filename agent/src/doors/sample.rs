//! Which flows are looked up when more open than the limit allows: in, what opens; out, a uniform random part of it.
//!
//! Flows are gathered for one round, a tenth of a second. At its end as many of them are drawn as the limit has left,
//! each set of that size being as likely as any other, so that the part drawn is not that of the round's beginning.
//! What the limit allows and quiet rounds did not use is kept for up to one second: a burst shorter than that is looked
//! up whole, and the first second of a longer one more densely than the rest.

use std::time::Instant;

use fastrand::Rng;

/// How many look-ups are left: a token bucket that holds what one second allows.
#[derive(Debug)]
pub struct Allowance {
    each_second: f64,
    left: f64,
    at: Instant,
}

impl Allowance {
    /// Full.
    pub fn new(each_second: u32, now: Instant) -> Self {
        let each_second = f64::from(each_second);
        Self {
            each_second,
            left: each_second,
            at: now,
        }
    }

    /// What is left at this moment.
    pub fn left(&mut self, now: Instant) -> usize {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + seconds * self.each_second).min(self.each_second);
        self.left as usize
    }

    /// Takes some of it, not more than is left.
    pub fn take(&mut self, look_ups: usize) {
        self.left -= look_ups as f64;
    }
}

/// A uniform random sample of what one round offers, of bounded size (reservoir sampling).
#[derive(Debug)]
pub struct Sample<T> {
    drawn: Vec<T>,
    offered: usize,
    capacity: usize,
    random: Rng,
}

impl<T> Sample<T> {
    /// Empty; never more than `capacity` are drawn.
    pub fn new(capacity: usize, random: Rng) -> Self {
        Self {
            drawn: Vec::new(),
            offered: 0,
            capacity,
            random,
        }
    }

    /// Adds one; returns the one that had to make room, if any.
    pub fn offer(&mut self, item: T) -> Option<T> {
        self.offered += 1;
        if self.drawn.len() < self.capacity {
            self.drawn.push(item);
            return None;
        }
        match self.drawn.get_mut(self.random.usize(..self.offered)) {
            Some(slot) => Some(std::mem::replace(slot, item)),
            None => Some(item),
        }
    }

    /// Ends the round: up to `size` of what it offered, and the rest of what was drawn.
    pub fn draw(&mut self, size: usize) -> (Vec<T>, Vec<T>) {
        self.offered = 0;
        let mut drawn = std::mem::take(&mut self.drawn);
        if drawn.len() <= size {
            return (drawn, Vec::new());
        }
        self.random.shuffle(&mut drawn);
        let rest = drawn.split_off(size);
        (drawn, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_place_of_a_round_is_as_likely_as_any_other() {
        let mut sample = Sample::new(20, Rng::with_seed(7));
        let mut times = [0_u32; 100];
        for _ in 0..5_000 {
            let made_room = (0..100_usize).filter_map(|item| sample.offer(item)).count();
            let (drawn, rest) = sample.draw(10);
            assert_eq!((drawn.len(), rest.len(), made_room), (10, 10, 80));
            for item in drawn {
                times[item] += 1;
            }
        }
        // Each is drawn 500 times on average, with a standard deviation of 21.
        assert!(
            times.iter().all(|drawn| (390..610).contains(drawn)),
            "not uniform: {times:?}"
        );
    }

    #[test]
    fn a_round_below_the_limit_is_drawn_whole() {
        let mut sample = Sample::new(20, Rng::with_seed(7));
        for item in 0..20 {
            assert_eq!(sample.offer(item), None);
        }
        assert_eq!(sample.draw(20), ((0..20).collect(), Vec::new()));
        assert_eq!(sample.draw(20), (Vec::new(), Vec::new()));
    }

    #[test]
    fn no_room_at_all_draws_nothing() {
        let mut sample = Sample::new(0, Rng::with_seed(7));
        assert_eq!(sample.offer(1), Some(1));
        assert_eq!(sample.draw(5), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_second_allows_what_it_should() {
        let start = Instant::now();
        let mut allowance = Allowance::new(100, start);
        assert_eq!(allowance.left(start), 100);
        allowance.take(100);
        assert_eq!(allowance.left(start + Duration::from_millis(105)), 10);
        allowance.take(10);
        assert_eq!(
            allowance.left(start + Duration::from_secs(60)),
            100,
            "no more than a second's"
        );
    }
}
