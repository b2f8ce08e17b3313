//! Time and randomness enter; the keys under which clients are hashed now leave.
//!
//! A hash can be compared only with one under the same key, so a key that is to go is used beside its successor for as long as
//! anybody may ask back. Questions use the oldest key in use: its hashes reach as far back as windows do.

use std::fmt;
use std::time::Duration;

use super::KEEP_MS;
use crate::millis;

/// Shortest life of a key: twice the time in which two are in use, and some.
pub const MIN_ROTATION: Duration = Duration::from_secs(3 * 3600);

/// A key under which every agent hashes clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientKey {
    /// Says which key a hash was made with.
    pub id: u32,
    /// The key.
    pub key: [u8; 16],
}

impl ClientKey {
    /// A new key, from the operating system.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self {
            id: getrandom::u32()?,
            key,
        })
    }
}

/// Whoever has the key can turn hashes back into addresses, so it is not shown.
impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The keys in use, oldest first: none before the first, two while one takes over.
#[derive(Debug, Default)]
pub struct ClientKeys {
    keys: Vec<ClientKey>,
    /// Since when the newest has been in use.
    since_ms: u64,
}

impl ClientKeys {
    /// The keys in use, oldest first.
    pub fn in_use(&self) -> &[ClientKey] {
        &self.keys
    }

    /// The id of the key that a question uses: the oldest in use. `None` before there is one.
    pub fn current(&self) -> Option<u32> {
        self.keys.first().map(|key| key.id)
    }

    /// Takes a new key into use when it is time, or lets the old one go. True when the keys in use have changed.
    ///
    /// # Errors
    /// That of the source of keys; the keys in use stay, and the next call tries again.
    pub fn advance<E>(
        &mut self,
        now_ms: u64,
        rotation: Duration,
        mut new_key: impl FnMut() -> Result<ClientKey, E>,
    ) -> Result<bool, E> {
        let age_ms = now_ms.saturating_sub(self.since_ms);
        let is_due = match self.keys.len() {
            0 => true,
            1 => age_ms >= millis(rotation),
            _ => {
                let is_due = age_ms >= KEEP_MS;
                if is_due {
                    self.keys.remove(0);
                }
                return Ok(is_due);
            }
        };
        if is_due {
            let mut key = new_key()?;
            while self.keys.iter().any(|old| old.id == key.id) {
                key = new_key()?;
            }
            self.keys.push(key);
            self.since_ms = now_ms;
        }
        Ok(is_due)
    }
}
