//! A Kubernetes-shaped network on one kernel: namespaces, kube-proxy rules, pods, clients, and a stand-in for the API
//! server. Scenario files enter; a run of the real agents and aggregator over real connections, compared with the truth,
//! leaves.

#![forbid(unsafe_code)]

pub mod apiserver;
pub mod bundled;
pub mod clients;
pub mod net;
pub mod pod;
pub mod run;
pub mod scenario;
pub mod suite;
