//! Who a pod is, and where its control group is, in the manner of Kubernetes with the driver `cgroupfs`. Names enter; UIDs
//! and paths leave.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder of the control groups of all pods of a node, below that of the node.
pub const PODS: &str = "kubepods";
/// The one container of a pod.
const CONTAINER: &str = "main";

/// The UID of a pod: another one for each run, and each time that a pod of this name starts.
pub fn pod_uid(run: &str, instance: &str) -> String {
    let digest = Sha256::digest(format!("{run}/{instance}"));
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    // The form of a random UUID, as the API server gives them.
    format!(
        "{}-{}-4{}-a{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..]
    )
}

/// The control group of a pod's container, below that of the run.
pub fn pod_cgroup(node: &str, uid: &str) -> PathBuf {
    Path::new(node).join(PODS).join(format!("pod{uid}")).join(CONTAINER)
}

/// The control group of a process of a node that is no pod.
pub fn process_cgroup(node: &str, name: &str) -> PathBuf {
    Path::new(node).join("system.slice").join(format!("{name}.service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_has_the_form_of_a_uuid_and_is_of_one_start_only() {
        let uid = pod_uid("1ax0", "gateway-1.1");
        let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(uid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()));
        assert_eq!(uid, pod_uid("1ax0", "gateway-1.1"));
        assert_ne!(uid, pod_uid("1ax0", "gateway-1.2"));
        assert_ne!(uid, pod_uid("1ax1", "gateway-1.1"));
    }
}
