//! Which pod is on which node, through the timeline. Moves and scale steps enter; the pods that come and go leave. The
//! checker of scenario files and the runner use the same rules, so that names mean the same to both.

/// A pod and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Name of the pod.
    pub pod: String,
    /// Name of its node.
    pub node: String,
}

/// The placement at one moment, in the order in which pods came.
#[derive(Debug, Clone, Default)]
pub struct PodSet {
    prefix: String,
    next: u64,
    pods: Vec<Placed>,
}

/// What a scale step changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scaling {
    /// Pods that start.
    pub added: Vec<String>,
    /// Pods that end, last first.
    pub removed: Vec<String>,
}

impl PodSet {
    /// No pods yet. Pods without a name of their own will be called `prefix-1`, `prefix-2`, and so on.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            next: 1,
            pods: Vec::new(),
        }
    }

    /// A pod with a name of its own.
    pub fn add_named(&mut self, pod: &str, node: &str) {
        self.pods.push(Placed {
            pod: pod.to_owned(),
            node: node.to_owned(),
        });
    }

    /// A pod with the next free name, which is returned.
    pub fn add(&mut self, node: &str) -> String {
        loop {
            let pod = format!("{}-{}", self.prefix, self.next);
            self.next += 1;
            if self.node_of(&pod).is_none() {
                self.add_named(&pod, node);
                return pod;
            }
        }
    }

    /// All pods.
    pub fn pods(&self) -> &[Placed] {
        &self.pods
    }

    /// The node of a pod; none if there is no such pod.
    pub fn node_of(&self, pod: &str) -> Option<&str> {
        self.pods
            .iter()
            .find(|placed| placed.pod == pod)
            .map(|placed| placed.node.as_str())
    }

    /// The pods of a node.
    pub fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        self.pods
            .iter()
            .filter(move |placed| placed.node == node)
            .map(|placed| placed.pod.as_str())
    }

    /// Puts a pod on another node. No effect if there is no such pod.
    pub fn relocate(&mut self, pod: &str, node: &str) {
        if let Some(placed) = self.pods.iter_mut().find(|placed| placed.pod == pod) {
            placed.node = node.to_owned();
        }
    }

    /// Another pod takes the place of one. No effect if there is no such pod.
    pub fn rename(&mut self, pod: &str, name: &str) {
        if let Some(placed) = self.pods.iter_mut().find(|placed| placed.pod == pod) {
            placed.pod = name.to_owned();
        }
    }

    /// Gives a node `pods` pods: new ones get the next free names, those that came last go.
    pub fn scale(&mut self, node: &str, pods: usize) -> Scaling {
        let present: Vec<String> = self.on(node).map(str::to_owned).collect();
        let removed: Vec<String> = present.iter().skip(pods).rev().cloned().collect();
        self.pods.retain(|placed| !removed.contains(&placed.pod));
        let added = (present.len()..pods).map(|_| self.add(node)).collect();
        Scaling { added, removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_names_pods_in_order_and_skips_names_in_use() {
        let mut pods = PodSet::new("web");
        pods.add_named("web-2", "b");
        assert_eq!((pods.add("a"), pods.add("a")), ("web-1".to_owned(), "web-3".to_owned()));
        let grown = pods.scale("a", 3);
        assert_eq!(
            grown,
            Scaling {
                added: vec!["web-4".to_owned()],
                removed: vec![]
            }
        );
        let shrunk = pods.scale("a", 1);
        assert_eq!(
            shrunk,
            Scaling {
                added: vec![],
                removed: vec!["web-4".to_owned(), "web-3".to_owned()]
            }
        );
        pods.relocate("web-2", "c");
        assert_eq!(pods.node_of("web-2"), Some("c"));
        pods.rename("web-2", "other");
        assert_eq!((pods.node_of("web-2"), pods.node_of("other")), (None, Some("c")));
        assert_eq!(pods.on("a").collect::<Vec<_>>(), ["web-1"]);
    }
}
