//! Records of the maps beside LEDGER and FLOWS, one file a purpose.

mod doors;
mod handled;
mod settings;
mod udp;
mod unserved;

pub use doors::{DoorCoverage, DoorKey, DoorValue, MAX_DOORS};
pub use handled::{HANDLED_MARKS, Handled};
pub use settings::Settings;
pub use udp::{UdpFlow, UdpFlowKey};
pub use unserved::{AttemptKey, UnservedKey, unserved_reason};
