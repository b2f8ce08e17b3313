//! The agent: loads the kernel programs, reads their counters and reports them to the aggregator.
//!
//! A connection's way through this crate: the kernel counts it ([`kernel`]), the [`observer`] joins the counters with whose
//! [`pods`] they are, by which [`doors`] flows came and what their [`clients`] did, a [`report`] of that goes [`upstream`]; the [`assignment`] comes back.
//! [`run`] owns all of it.
#![deny(unsafe_code)]

pub mod assignment;
pub mod check;
pub mod cleanup;
pub mod clients;
pub mod config;
pub mod convert;
pub mod degradation;
pub mod doors;
pub mod events;
pub mod forgetting;
pub mod http;
pub mod kernel;
pub mod metrics;
pub mod observer;
pub mod pods;
pub mod report;
pub mod run;
pub mod top;
pub mod upstream;
