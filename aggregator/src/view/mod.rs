//! Figures of the owner enter; reports and lists for people and programs leave. Pure.

mod input;
mod listing;
mod notes;
mod parts;
mod report;

#[cfg(test)]
mod tests;

pub use listing::{AgentState, PortSummary, ServiceSummary, agents, services};
pub use report::assemble;
