//! One kind of flows with all that is known of it before causes are sought.

use super::ServiceInput;
use super::design::{ClientView, Design};
use super::shares::Split;
use super::significance::skew;
use crate::report::{BalancerVerdict, FlowKind, Skew};

/// One kind of flows of a Service.
pub(super) struct Subject<'a> {
    pub input: &'a ServiceInput,
    pub split: &'a Split<'a>,
    pub skew: &'a Skew,
    /// How these flows are split over nodes. For established flows: were split when they opened.
    pub balancer: &'a BalancerVerdict,
    pub design: Design,
    /// The clients of the new flows; `None` when they are not known.
    pub view: Option<&'a ClientView>,
    /// False when a node with endpoints is silent.
    pub testable: bool,
}

impl Subject<'_> {
    /// True when the counts are more uneven than those of as many independent flows would be: what is uneven is then the
    /// load, though with other clients it might be so elsewhere, or not at all.
    pub fn uneven_as_counted(&self) -> bool {
        if self.design == Design::default() {
            self.skew.significant
        } else {
            skew(self.split, 1.0, self.testable).significant
        }
    }

    /// "new" or "established".
    pub fn kind(&self) -> &'static str {
        match self.split.kind {
            FlowKind::New => "new",
            FlowKind::Established => "established",
        }
    }
}
