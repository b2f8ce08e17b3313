//! kube-proxy's names for chains and sets: in, Service port and endpoint; out, names that carry the same hash as on a
//! real node, so that they can be compared.

use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use crate::net::service::ServicePlan;

/// `namespace/name:port`, as kube-proxy writes it in comments. An unnamed port has no colon.
pub fn service_port(service: &ServicePlan) -> String {
    let colon = if service.port_name.is_empty() { "" } else { ":" };
    format!("{}/{}{colon}{}", service.namespace, service.name, service.port_name)
}

/// Name of an iptables chain of the Service port: prefix and 16 characters of hash.
pub fn iptables_service(prefix: &str, service: &ServicePlan) -> String {
    format!(
        "{prefix}{}",
        hash(&format!("{}{}", service_port(service), service.protocol), 16)
    )
}

/// Name of the iptables chain of one endpoint.
pub fn iptables_endpoint(service: &ServicePlan, endpoint: SocketAddr) -> String {
    format!(
        "KUBE-SEP-{}",
        hash(&format!("{}{}{endpoint}", service_port(service), service.protocol), 16)
    )
}

/// Name of an nftables chain of the Service port: prefix, 8 characters of hash, and the Service in plain text.
pub fn nftables_service(prefix: &str, service: &ServicePlan) -> String {
    with_hash(prefix, &plain(service))
}

/// Name of an nftables chain or set of one endpoint. Colons are not allowed in names, so IPv6 has dots.
pub fn nftables_endpoint(prefix: &str, service: &ServicePlan, endpoint: SocketAddr) -> String {
    let address = endpoint.ip().to_string().replace(':', ".");
    let port = endpoint.port();
    with_hash(prefix, &format!("{}__{address}/{port}", plain(service)))
}

fn plain(service: &ServicePlan) -> String {
    let ServicePlan {
        namespace,
        name,
        protocol,
        port_name,
        ..
    } = service;
    format!("{namespace}/{name}/{protocol}/{port_name}")
}

fn with_hash(prefix: &str, name: &str) -> String {
    format!("{prefix}{}-{name}", hash(name, 8))
}

/// The first `length` characters of the SHA-256 of `text` in base32 (RFC 4648, section 6).
fn hash(text: &str, length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let digest = Sha256::digest(text);
    let bit = |index: usize| digest[index / 8] >> (7 - index % 8) & 1;
    let character = |at: usize| (0..5).fold(0, |value, offset| value << 1 | bit(at * 5 + offset));
    (0..length)
        .map(|at| char::from(ALPHABET[usize::from(character(at))]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{addresses::Family, service::Protocol};

    /// The expected names are those of kube-proxy for the same Service.
    #[test]
    fn names_are_those_of_kube_proxy() {
        let service = ServicePlan {
            namespace: "ns1".into(),
            name: "svc1".into(),
            port_name: "p80".into(),
            ..ServicePlan::example(Family::V4)
        };
        let endpoint: SocketAddr = "10.180.0.1:80".parse().unwrap();
        assert_eq!(iptables_service("KUBE-SVC-", &service), "KUBE-SVC-XPGD46QRK7WJZT7O");
        assert_eq!(iptables_endpoint(&service, endpoint), "KUBE-SEP-SXIVWICOYRO3J4NJ");
        assert_eq!(
            nftables_service("service-", &service),
            "service-ULMVA6XW-ns1/svc1/tcp/p80"
        );
        assert_eq!(
            nftables_endpoint("endpoint-", &service, endpoint),
            "endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"
        );
    }

    #[test]
    fn protocols_have_names_of_their_own() {
        let tcp = ServicePlan::example(Family::V4);
        let udp = ServicePlan {
            protocol: Protocol::Udp,
            ..tcp.clone()
        };
        assert_ne!(iptables_service("KUBE-SVC-", &tcp), iptables_service("KUBE-SVC-", &udp));
        let name = nftables_service("service-", &udp);
        assert!(name.ends_with("-telemetry/gateway/udp/mqtts"), "{name}");
    }

    #[test]
    fn an_unnamed_port_has_no_colon_and_ipv6_no_colons() {
        let service = ServicePlan {
            port_name: String::new(),
            ..ServicePlan::example(Family::V6)
        };
        assert_eq!(service_port(&service), "telemetry/gateway");
        let name = nftables_endpoint("affinity-", &service, "[fd00::1]:80".parse().unwrap());
        assert!(name.ends_with("-telemetry/gateway/tcp/__fd00..1/80"), "{name}");
    }
}
