//! What outlives an agent: flows by front door, and the coverage of the look-ups. In, changed values; out, at the
//! start, what the agent before has left.

use aya::maps::{Array, HashMap, MapData, MapError};
use flowskew_agent_ebpf::{DoorCoverage, DoorKey, DoorValue};

/// Where door counts are kept. A value that was reported has been written before.
pub trait Memory: Send {
    /// All that was written.
    fn load(&self) -> Result<(Vec<(DoorKey, DoorValue)>, DoorCoverage), MapError>;
    /// Writes one door.
    fn write(&mut self, key: &DoorKey, value: &DoorValue) -> Result<(), MapError>;
    /// Removes one door.
    fn remove(&mut self, key: &DoorKey) -> Result<(), MapError>;
    /// Writes the coverage.
    fn write_coverage(&mut self, coverage: &DoorCoverage) -> Result<(), MapError>;
}

/// The maps DOORS and DOOR_COVERAGE, which are pinned when the agent pins.
pub struct Maps {
    /// DOORS.
    pub doors: HashMap<MapData, DoorKey, DoorValue>,
    /// DOOR_COVERAGE.
    pub coverage: Array<MapData, DoorCoverage>,
}

impl Memory for Maps {
    fn load(&self) -> Result<(Vec<(DoorKey, DoorValue)>, DoorCoverage), MapError> {
        Ok((self.doors.iter().collect::<Result<_, _>>()?, self.coverage.get(&0, 0)?))
    }

    fn write(&mut self, key: &DoorKey, value: &DoorValue) -> Result<(), MapError> {
        self.doors.insert(key, value, 0)
    }

    fn remove(&mut self, key: &DoorKey) -> Result<(), MapError> {
        self.doors.remove(key)
    }

    fn write_coverage(&mut self, coverage: &DoorCoverage) -> Result<(), MapError> {
        self.coverage.set(0, coverage, 0)
    }
}
