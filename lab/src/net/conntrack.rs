//! UDP entries of connection tracking: in, where a flow went and who answers it; out, the kernel has forgotten such flows,
//! and their next datagram is sent by the rules of then.
//!
//! kube-proxy does the same when an endpoint goes. It leaves TCP alone: a TCP flow ends by itself.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::namespace::run;

/// Who answers a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The destination was rewritten to this one.
    Endpoint(SocketAddr),
    /// The destination was kept, and the flow has this mark.
    Marked(usize),
}

/// Forgets the UDP flows to `original` that `answers` answers, in the namespace the calling thread is in.
///
/// # Errors
/// The program `conntrack` is missing, or the kernel refuses.
pub fn forget_udp(original: SocketAddr, answers: Answers) -> Result<()> {
    let arguments = arguments(original, answers);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run("conntrack", &arguments, "") {
        // It fails when there was nothing to forget.
        Err(error) if error.to_string().contains(" 0 flow entries have been deleted") => Ok(()),
        result => result.map(drop),
    }
}

fn arguments(original: SocketAddr, answers: Answers) -> Vec<String> {
    let family = match original.ip() {
        IpAddr::V4(_) => "ipv4",
        IpAddr::V6(_) => "ipv6",
    };
    let mut arguments: Vec<String> = ["-D", "-f", family, "-p", "udp", "--orig-dst"]
        .map(str::to_owned)
        .into();
    let port = original.port().to_string();
    arguments.extend([original.ip().to_string(), "--orig-port-dst".into(), port]);
    arguments.extend(match answers {
        Answers::Endpoint(endpoint) => vec![
            "--reply-src".into(),
            endpoint.ip().to_string(),
            "--reply-port-src".into(),
            endpoint.port().to_string(),
        ],
        Answers::Marked(mark) => vec!["--mark".into(), mark.to_string()],
    });
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_flow_are_named() {
        let check = |original: &str, answers, expected: &str| {
            assert_eq!(arguments(original.parse().unwrap(), answers).join(" "), expected);
        };
        check(
            "203.0.113.10:5683",
            Answers::Endpoint("10.244.0.2:5683".parse().unwrap()),
            "-D -f ipv4 -p udp --orig-dst 203.0.113.10 --orig-port-dst 5683 --reply-src 10.244.0.2 --reply-port-src 5683",
        );
        check(
            "[2001:db8::a]:5683",
            Answers::Marked(2),
            "-D -f ipv6 -p udp --orig-dst 2001:db8::a --orig-port-dst 5683 --mark 2",
        );
    }
}
