//! Keyed hashes of clients: in, the keys that the aggregator gives and an address; out, one hash for each key, and whether the
//! client belongs to a sample.

use std::fmt;

use flowskew_agent_ebpf::Address;
use siphasher::sip::SipHasher24;

/// Keys that can be in use at once: one, and another while it takes over.
pub const MAX_KEYS: usize = 2;

/// A key under which clients are hashed, the same on all nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientKey {
    /// Says which key a hash was made with.
    pub id: u32,
    /// A secret of the cluster: who knows it can tell a hash's address by trying all.
    pub key: [u8; 16],
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The keys in use, ready to hash with.
#[derive(Clone, Default)]
pub struct Keys(Vec<(u32, SipHasher24)>);

impl Keys {
    /// Takes these keys into use.
    pub fn new(keys: &[ClientKey]) -> Self {
        Self(
            (keys.iter())
                .map(|key| (key.id, SipHasher24::new_with_key(&key.key)))
                .collect(),
        )
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids, in the order of the keys.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// The client's hashes, in the order of the keys.
    pub fn hashes(&self, client: &Address) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(_, hasher)| hasher.hash(client))
    }

    /// Whether the client's hash under any key is below 2^(64 - `shift`): each sample lies within those of smaller shifts. `shift`
    /// is below 64; 0 takes all.
    pub fn samples(&self, client: &Address, shift: u32) -> bool {
        shift == 0 || self.hashes(client).any(|hash| hash >> (64 - shift) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_the_authors_of_siphash_publish() {
        // Appendix A of "SipHash: a fast short-input PRF", Aumasson and Bernstein, 2012, and its table of test vectors: key
        // 00 01 .. 0f, message 00 01 .. of the length of an address.
        let count = std::array::from_fn(|byte| byte as u8);
        let keys = Keys::new(&[ClientKey { id: 7, key: count }]);
        assert_eq!(keys.hashes(&count).collect::<Vec<_>>(), [0x3f2a_cc7f_57c2_9bdb]);
        assert_eq!(keys.ids().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_secret_is_not_printed() {
        let text = format!("{:?}", ClientKey { id: 7, key: [99; 16] });
        assert!(text.contains('7') && !text.contains("99"), "{text}");
    }
}
