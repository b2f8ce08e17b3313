//! How old the established flows of a Service port are, and how long their skew will last.

use serde::{Deserialize, Serialize};

use super::Estimate;

/// Established flows by age, and when they will be even if nobody restarts anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Persistence {
    /// Established flows whose ages were looked at.
    pub flows: u64,
    /// Share of them that opened before the ready endpoints last changed; null when they have not changed within an hour. The
    /// interval is what the width of the age buckets leaves open.
    pub before_change: Option<Estimate>,
    /// By endpoint, in the order of the report's endpoints.
    pub endpoints: Vec<EndpointAges>,
    /// Flows that closed within the window, of those that were open when it began; of all where that is not known.
    pub closes: u64,
    /// For how long these flows were open within the window, summed: flow-hours.
    pub flow_hours: f64,
    /// Closes per flow and hour. Null when no flow was open.
    pub hazard_per_hour: Option<Estimate>,
    /// Peak ratio below which flows are taken for even.
    pub target_peak_ratio: f64,
    /// Hours until the peak ratio of established flows is below the target, if new flows go on as in the window and old ones
    /// close as in the window. 0: it is so already. Null: never, or nobody knows; `sentence` says which. The upper end is null when
    /// it may be never.
    pub hours_to_even: Option<f64>,
    /// Lower end of its 95 % interval.
    pub hours_to_even_low: Option<f64>,
    /// Upper end.
    pub hours_to_even_high: Option<f64>,
    /// Flows that are still open on endpoints that are terminating, not ready or gone.
    pub left_on_gone: u64,
    /// The same for people.
    pub sentence: String,
}

/// Ages of the established flows of one endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointAges {
    /// Name of the pod.
    pub pod: String,
    /// Flows whose ages were looked at.
    pub flows: u64,
    /// Those of them that were open before counting began: older than all that is known.
    pub unknown: u64,
    /// Median age in seconds, as an interval; null without flows, or when it is among the unknown.
    pub median_seconds: Option<Estimate>,
    /// Age in seconds that one of ten exceeds; null as above.
    pub p90_seconds: Option<Estimate>,
    /// Flows that opened before the ready endpoints last changed; null when that is not known.
    pub before_change: Option<Estimate>,
}
