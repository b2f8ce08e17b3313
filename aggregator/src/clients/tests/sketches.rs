//! Sketches from agents, honest and hostile.

use std::sync::LazyLock;

use datasketches::hll::{HllSketch, HllType};
use proptest::prelude::*;

use super::sketch::{Distinct, LG_K, decode, of};
use super::*;

fn bytes_of(clients: u64, lg_k: u8, kind: HllType) -> Vec<u8> {
    let mut sketch = HllSketch::new(lg_k, kind).unwrap();
    (0..clients).for_each(|n| sketch.update(hash(n)));
    sketch.serialize()
}

/// As a question treats a sketch that was taken.
fn ask(sketch: &HllSketch) -> Option<crate::report::Estimate> {
    static FEW: LazyLock<Option<HllSketch>> = LazyLock::new(|| of((0..5).map(hash)));
    static MANY: LazyLock<Option<HllSketch>> = LazyLock::new(|| of((0..100_000).map(hash)));
    let (few, many) = (&*FEW, &*MANY);
    for others in [
        [few.as_ref(), None],
        [few.as_ref(), many.as_ref()],
        [many.as_ref(), few.as_ref()],
    ] {
        let mut distinct = Distinct::default();
        distinct.add(others[0]);
        distinct.add(Some(sketch));
        distinct.add(others[1]);
        assert_eq!(distinct.estimate().is_some(), others[1].is_some());
    }
    let mut alone = Distinct::default();
    alone.add(Some(sketch));
    alone.add(Some(sketch));
    alone.estimate()
}

#[test]
fn what_an_agent_sends_is_understood() {
    for clients in [0, 1, 7, 8, 100, 191, 192, 193, 5_000, 300_000] {
        let sketch = decode(&bytes_of(clients, LG_K, HllType::Hll8)).unwrap();
        assert_eq!(Some(&sketch), of((0..clients).map(hash)).as_ref(), "{clients}");
        let found = ask(&sketch).unwrap();
        let truth = clients as f64;
        assert!((found.value - truth).abs() <= truth * 0.06, "{clients}: {found:?}");
        assert!(
            found.low <= found.value && found.value <= found.high,
            "{clients}: {found:?}"
        );
    }
}

#[test]
fn joined_sketches_are_those_of_the_joined_clients() {
    let parts = [0..40_000, 20_000..60_000, 0..100];
    let mut distinct = Distinct::default();
    for part in parts {
        distinct.add(of(part.map(hash)).as_ref());
    }
    let found = distinct.estimate().unwrap();
    assert!(found.low < 60_000.0 && 60_000.0 < found.high, "{found:?}");
}

#[test]
fn sketches_of_another_kind_are_not_taken() {
    let ours = || bytes_of(5_000, LG_K, HllType::Hll8);
    assert!(decode(&[]).is_none());
    assert!(decode(&bytes_of(5_000, 12, HllType::Hll8)).is_none());
    assert!(decode(&bytes_of(5_000, 21, HllType::Hll8)).is_none());
    assert!(decode(&bytes_of(5_000, LG_K, HllType::Hll4)).is_none());
    assert!(decode(&bytes_of(5_000, LG_K, HllType::Hll6)).is_none());
    assert!(decode(&ours()[..2_000]).is_none());
    assert!(decode(&[ours(), vec![0]].concat()).is_none());
    let with = |at: usize, bytes: &[u8]| {
        let mut sketch = ours();
        sketch[at..at + bytes.len()].copy_from_slice(bytes);
        decode(&sketch)
    };
    assert!(with(40, &[64]).is_none(), "a register beyond what a hash can give");
    assert!(with(8, &f64::NAN.to_le_bytes()).is_none());
    assert!(with(8, &f64::INFINITY.to_le_bytes()).is_none());
    assert!(with(8, &(-1.0_f64).to_le_bytes()).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_bytes_break_a_question(
        start in 0_usize..4,
        changes in prop::collection::vec((0.0..1.0, any::<u8>()), 0..12),
        cut in prop::option::weighted(0.2, 0.0..1.0),
        tail in prop::collection::vec(any::<u8>(), 0..40),
        is_header in any::<bool>(),
    ) {
        let mut bytes = bytes_of([0, 5, 100, 3_000][start], LG_K, HllType::Hll8);
        for (at, byte) in changes {
            // Half of them where the header is.
            let length = if is_header { bytes.len().min(40) } else { bytes.len() };
            let at = (at * length as f64) as usize;
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
            bytes.extend(tail);
        }
        if let Some(sketch) = decode(&bytes) {
            prop_assert!(sketch.estimated_size() <= 1 << LG_K);
            ask(&sketch);
        }
    }

    #[test]
    fn random_bytes_behind_a_good_header_break_nothing(
        mode in 0b1000_u8..=0b1010,
        preamble in 0_u8..12,
        head in any::<[u8; 4]>(),
        body in prop::collection::vec(0_u8..64, 0..2_080),
        sums in any::<[u8; 32]>(),
    ) {
        let [lg_array, flags, state, version] = head;
        let mut bytes = vec![preamble, 1 + version / 128, 7, LG_K, lg_array % 16, flags, state, mode];
        bytes.extend(sums);
        bytes.extend(body);
        bytes.truncate(2_088);
        if let Some(sketch) = decode(&bytes) {
            ask(&sketch);
        }
    }
}
