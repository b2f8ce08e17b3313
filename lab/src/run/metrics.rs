//! Reads the metrics page of an agent. OpenMetrics text enters; samples, and the counts of one endpoint, leave.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::observe::Flows;

/// One line of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// A page that was read.
#[derive(Debug, Clone, Default)]
pub struct Page(Vec<Sample>);

impl Page {
    /// Reads a page; lines that are no samples are left out.
    pub fn parse(text: &str) -> Self {
        Self(
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(sample)
                .collect(),
        )
    }

    /// The flows of source class external at one address and port; 0 where the page does not have them.
    pub fn flows(&self, address: IpAddr, port: u16) -> Flows {
        let count = |name| self.external(name, address, port);
        Flows {
            opened: count("flowskew_agent_opened_total"),
            closed: count("flowskew_agent_closed_total"),
            established: count("flowskew_agent_established"),
        }
    }

    /// The sum of a counter over all its labels; none when the page does not have it.
    pub fn total(&self, name: &str) -> Option<u64> {
        let named = self.0.iter().filter(|sample| sample.name == name);
        named
            .map(|sample| sample.value as u64)
            .reduce(|sum, value| sum.saturating_add(value))
    }

    fn external(&self, name: &str, address: IpAddr, port: u16) -> u64 {
        let is = |sample: &&Sample| {
            let label = |key: &str| sample.labels.get(key).map(String::as_str);
            sample.name == name
                && label("source_class") == Some("external")
                && label("port") == Some(&port.to_string())
                && label("address").and_then(|text| text.parse::<IpAddr>().ok()) == Some(address)
        };
        self.0.iter().filter(is).map(|sample| sample.value as u64).sum()
    }

    /// The values of a counter that are not 0, by one of its labels.
    pub fn not_zero(&self, name: &str, label: &str) -> BTreeMap<String, u64> {
        let named = self.0.iter().filter(|sample| sample.name == name && sample.value > 0.0);
        named
            .filter_map(|sample| Some((sample.labels.get(label)?.clone(), sample.value as u64)))
            .collect()
    }
}

/// `name{key="value",…} number`, with an optional time and exemplar after it.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}')?,
        None => ("", rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    // No agent label has a comma or a quote in its value: addresses, ports and fixed words.
    let labels = labels.split(',').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    });
    Some(Sample {
        name: name.to_owned(),
        labels: labels.collect(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# HELP flowskew_agent_opened Flows.
# TYPE flowskew_agent_opened counter
flowskew_agent_opened_total{address="10.0.0.1",port="80",protocol="tcp",source_class="external"} 11
flowskew_agent_opened_total{address="10.0.0.1",port="80",protocol="tcp",source_class="node"} 5
flowskew_agent_opened_total{address="fd00::1",port="80",protocol="tcp",source_class="external"} 7
flowskew_agent_closed_total{address="10.0.0.1",port="80",protocol="tcp",source_class="external",cause="client_fin"} 3
flowskew_agent_closed_total{address="10.0.0.1",port="80",protocol="tcp",source_class="external",cause="other"} 2
flowskew_agent_losses_total{kind="ring_full"} 0
flowskew_agent_losses_total{kind="flows_full"} 3
flowskew_agent_connected 1
# EOF
"#;

    #[test]
    fn counts_are_read_by_address_port_and_class() {
        let page = Page::parse(PAGE);
        let flows = |address: &str, port| page.flows(address.parse().unwrap(), port);
        let flows_of = |opened, closed| Flows {
            opened,
            closed,
            established: 0,
        };
        assert_eq!(flows("10.0.0.1", 80), flows_of(11, 5));
        assert_eq!(flows("fd00::1", 80), flows_of(7, 0));
        assert_eq!([flows("10.0.0.1", 81), flows("10.0.0.2", 80)], [Flows::default(); 2]);
    }

    #[test]
    fn a_total_is_over_all_labels() {
        let page = Page::parse(PAGE);
        assert_eq!(page.total("flowskew_agent_opened_total"), Some(23));
        assert_eq!(page.total("flowskew_agent_unheard_of_total"), None);
    }

    #[test]
    fn only_losses_that_happened_are_told() {
        let losses = Page::parse(PAGE).not_zero("flowskew_agent_losses_total", "kind");
        assert_eq!(losses, BTreeMap::from([("flows_full".to_owned(), 3)]));
    }
}
