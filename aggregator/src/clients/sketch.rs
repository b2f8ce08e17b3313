//! HyperLogLog sketches of clients: bytes from agents, or hashes, enter; numbers of distinct clients leave.
//!
//! The sketch is HLL_8 of Apache DataSketches with 2^11 registers; its items are the keyed hashes of clients, as 64-bit integers
//! (P. Flajolet et al., HyperLogLog, 2007; the estimator of the library is HIP: E. Cohen, All-distances sketches, 2015).

use datasketches::common::NumStdDev;
use datasketches::hll::{HllSketch, HllType, HllUnion};

use crate::report::Estimate;

/// Logarithm of the number of registers.
pub const LG_K: u8 = 11;

/// Where a sketch has the logarithm of the number of its registers.
const LG_K_AT: usize = 3;
/// Where a sketch says how it stores registers and what stands in it.
const MODE_AT: usize = 7;
/// Both, for HLL_8: coupons in a list, coupons in a set, registers.
const HLL_8_MODES: [u8; 3] = [0b1000, 0b1001, REGISTERS];
const REGISTERS: u8 = 0b1010;
/// Where the registers begin.
const REGISTERS_AT: usize = 40;
/// Largest value of a register: a hash of 64 bits has no longer run of zeros.
const MAX_REGISTER: u8 = 63;

/// The sketch that bytes hold; `None` when they hold none, or one of another size or kind. The bytes may be hostile.
pub fn decode(bytes: &[u8]) -> Option<HllSketch> {
    let is_ours =
        bytes.get(LG_K_AT) == Some(&LG_K) && bytes.get(MODE_AT).is_some_and(|mode| HLL_8_MODES.contains(mode));
    if !is_ours || bytes.len() > REGISTERS_AT + (1 << LG_K) {
        return None;
    }
    let has_registers = bytes.get(MODE_AT) == Some(&REGISTERS);
    let registers = bytes.get(REGISTERS_AT..).unwrap_or_default();
    if has_registers && registers.iter().any(|&register| register > MAX_REGISTER) {
        return None;
    }
    let sketch = HllSketch::deserialize(bytes).ok()?;
    // The sums that come with the registers may be anything. A union makes them anew; all but the estimate itself.
    let mut union = HllUnion::new(LG_K).ok()?;
    union.update(&sketch);
    let sketch = union.to_sketch(HllType::Hll8);
    let estimate = sketch.estimate();
    (estimate.is_finite() && estimate >= 0.0).then_some(sketch)
}

/// The sketch of these clients; `None` never, as the number of registers is a good one.
pub fn of(clients: impl Iterator<Item = u64>) -> Option<HllSketch> {
    let mut sketch = HllSketch::new(LG_K, HllType::Hll8).ok()?;
    clients.for_each(|client| sketch.update(client));
    Some(sketch)
}

/// Distinct clients over several sketches.
#[derive(Debug)]
pub struct Distinct(Option<HllUnion>);

impl Default for Distinct {
    fn default() -> Self {
        Self(HllUnion::new(LG_K).ok())
    }
}

impl Distinct {
    /// Adds the clients of a sketch; without one, their number is not known any more.
    pub fn add(&mut self, sketch: Option<&HllSketch>) {
        match (&mut self.0, sketch) {
            (Some(union), Some(sketch)) => union.update(sketch),
            (union, _) => *union = None,
        }
    }

    /// How many they are, with two standard errors to each side.
    pub fn estimate(&self) -> Option<Estimate> {
        let union = self.0.as_ref()?;
        Some(Estimate {
            value: union.estimate(),
            low: union.lower_bound(NumStdDev::Two),
            high: union.upper_bound(NumStdDev::Two),
        })
    }
}
