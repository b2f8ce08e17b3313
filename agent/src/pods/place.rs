//! Names of cgroups: in, the folders from the root of the hierarchy down; out, whether they are in a pod, and in which.
//!
//! The kubelet makes a cgroup for each pod and the container runtime one for each container in it, with names of two kinds:
//! - systemd: `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID with _ for ->.slice/cri-containerd-<id>.scope`
//! - cgroupfs: `kubepods/burstable/pod<UID>/<id>`
//!
//! A kubelet that is itself in a container or slice has folders above that, as in `kubelet.slice/kubelet-kubepods.slice/...`.

use std::{path::Path, sync::Arc};

use super::Pod;

/// What a cgroup is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Not in what a kubelet manages.
    Outside,
    /// Among the pods of a kubelet.
    Kubepods,
    /// In a pod, or the pod's own. The outermost: in a pod that runs a cluster of its own, that cluster's pods are parts of it.
    Pod(Arc<Pod>),
}

impl Place {
    /// What the folder `path` is in, by its name, when the folder above it is in `self`.
    pub(super) fn below(&self, path: &Path) -> Self {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match self {
            Self::Pod(_) => self.clone(),
            Self::Outside if is_kubepods(name) => Self::Kubepods,
            Self::Outside => Self::Outside,
            Self::Kubepods => pod_uid(name).map_or(Self::Kubepods, |uid| {
                Self::Pod(Arc::new(Pod {
                    uid,
                    cgroup: path.to_owned(),
                }))
            }),
        }
    }

    /// What a folder is in, by its whole path.
    pub(super) fn of(path: &Path) -> Self {
        let above = path.parent().map_or(Self::Outside, Self::of);
        above.below(path)
    }

    /// The pod, if it is one.
    pub(super) fn pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Self::Pod(pod) => Some(pod),
            Self::Outside | Self::Kubepods => None,
        }
    }
}

fn is_kubepods(name: &str) -> bool {
    let slice = name.strip_suffix(".slice");
    name == "kubepods" || slice.is_some_and(|slice| slice == "kubepods" || slice.ends_with("-kubepods"))
}

/// The UID in the name of a pod's cgroup; `None` for all other names.
fn pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        // Dashes part the levels of slices, so those of the UID are written otherwise.
        Some(slice) => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let groups: Vec<_> = uid.split('-').map(str::len).collect();
    let shaped = matches!(groups[..], [8, 4, 4, 4, 12] | [32]);
    let hex = uid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (shaped && hex).then(|| uid.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45";
    const STATIC: &str = "6fa2b1d0c94e8f7350ab12cd34ef5678";

    #[test]
    fn pods_by_their_paths() {
        for (path, pod) in [
            // systemd: containerd, CRI-O, Docker; the three classes of service.
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0e5b1f6a_93c2_4d7e_8a10_6f2d9c3b7a45.slice/\
                 cri-containerd-77aa.scope",
                Some((UID, 3)),
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0e5b1f6a_93c2_4d7e_8a10_6f2d9c3b7a45.slice/\
                 crio-77aa.scope/container",
                Some((UID, 3)),
            ),
            (
                "/kubepods.slice/kubepods-pod0e5b1f6a_93c2_4d7e_8a10_6f2d9c3b7a45.slice/docker-77aa.scope",
                Some((UID, 2)),
            ),
            (
                "/kubepods.slice/kubepods-pod0E5B1F6A_93C2_4D7E_8A10_6F2D9C3B7A45.slice",
                Some((UID, 2)),
            ),
            // cgroupfs.
            (
                "/kubepods/burstable/pod0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45/77aa",
                Some((UID, 3)),
            ),
            (
                "/kubepods/pod0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45/77aa/init.scope/deep",
                Some((UID, 2)),
            ),
            // Pods from files.
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6fa2b1d0c94e8f7350ab12cd34ef5678.slice/x.scope",
                Some((STATIC, 3)),
            ),
            (
                "/kubepods/burstable/pod6fa2b1d0c94e8f7350ab12cd34ef5678/77aa",
                Some((STATIC, 3)),
            ),
            // A kubelet in a slice or a container of its own.
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
                 kubelet-kubepods-burstable-pod0e5b1f6a_93c2_4d7e_8a10_6f2d9c3b7a45.slice/cri-containerd-77aa.scope",
                Some((UID, 4)),
            ),
            (
                "/docker/77aa/kubelet/kubepods/burstable/pod0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45/88bb",
                Some((UID, 6)),
            ),
            // A cluster in a pod: the pod of the node counts.
            (
                "/kubepods/pod0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45/77aa/kubepods/podffffffff-93c2-4d7e-8a10-6f2d9c3b7a45/88bb",
                Some((UID, 2)),
            ),
            // No pods.
            ("/", None),
            ("/system.slice/sshd.service", None),
            ("/kubepods", None),
            ("/kubepods.slice/kubepods-burstable.slice", None),
            ("/kubepods/burstable", None),
            ("/kubepods/burstable/podman/77aa", None),
            ("/kubepods/pod0e5b1f6a-93c2-4d7e-8a10/77aa", None),
            ("/kubepods/pod0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a4g/77aa", None),
            ("/kubepods/podé5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a4/77aa", None),
            ("/kubepods.slice/kubepods-pod.slice", None),
            ("/user.slice/pod0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45/77aa", None),
            (
                "/machine.slice/libpod_pod_6fa2b1d0c94e8f7350ab12cd34ef5678.slice/libpod-77aa.scope",
                None,
            ),
        ] {
            let expected = pod.map(|(uid, depth)| Pod {
                uid: uid.to_owned(),
                cgroup: Path::new(path).iter().take(depth + 1).collect(),
            });
            let place = Place::of(Path::new(path));
            assert_eq!(place.pod().map(Arc::as_ref), expected.as_ref(), "{path}");
        }
    }
}
