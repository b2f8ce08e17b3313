//! Offsets of kernel structure fields: in, the running kernel's BTF; out, the globals that the programs read.

use btf_rs::{Btf, BtfType, Member, Struct, Type};
use thiserror::Error;

/// Where the kernel describes its types.
pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// Global of the programs, structure, and path of members inside it.
const FIELDS: &[(&str, &str, &[&str])] = &[
    ("SKC_FAMILY", "sock_common", &["skc_family"]),
    ("SKC_STATE", "sock_common", &["skc_state"]),
    ("SKC_NUM", "sock_common", &["skc_num"]),
    ("SKC_DPORT", "sock_common", &["skc_dport"]),
    ("SKC_DADDR", "sock_common", &["skc_daddr"]),
    ("SKC_RCV_SADDR", "sock_common", &["skc_rcv_saddr"]),
    ("SKC_V6_DADDR", "sock_common", &["skc_v6_daddr"]),
    ("SKC_V6_RCV_SADDR", "sock_common", &["skc_v6_rcv_saddr"]),
    ("SKC_NET", "sock_common", &["skc_net"]),
    ("SK_PROTOCOL", "sock", &["sk_protocol"]),
    ("SK_ERR", "sock", &["sk_err"]),
    ("CGROUP_KN", "cgroup", &["kn"]),
    ("KN_ID", "kernfs_node", &["id"]),
    ("SOCKET_SK", "socket", &["sk"]),
    ("FILE_INODE", "file", &["f_inode"]),
    ("FILE_PRIVATE_DATA", "file", &["private_data"]),
    ("INODE_SB", "inode", &["i_sb"]),
    ("SB_MAGIC", "super_block", &["s_magic"]),
];

/// The pointer to a socket's cgroup. Before 5.14 it shared a word with other data, which had another name. The programs take 0
/// for: no such field.
const CGROUP: &[(&str, &str, &[&str])] = &[
    ("SK_CGROUP", "sock", &["sk_cgrp_data", "cgroup"]),
    ("SK_CGROUP_VALUE", "sock", &["sk_cgrp_data", "val"]),
];

/// What the program `kfree_skb` reads.
const PACKET: &[(&str, &str, &[&str])] = &[
    ("SKB_HEAD", "sk_buff", &["head"]),
    ("SKB_NETWORK_HEADER", "sk_buff", &["network_header"]),
    ("SKB_DEV", "sk_buff", &["dev"]),
    ("DEV_NET", "net_device", &["nd_net", "net"]),
    ("NET_INUM", "net", &["ns", "inum"]),
];

/// The reasons of dropped packets that it looks for.
const DROP_REASONS: &[(&str, &str)] = &[
    ("DROP_NETFILTER", "SKB_DROP_REASON_NETFILTER_DROP"),
    ("DROP_NO_SOCKET", "SKB_DROP_REASON_NO_SOCKET"),
];

/// An offset that could not be found.
#[derive(Debug, Error)]
pub enum OffsetError {
    /// The kernel's BTF could not be read.
    #[error("cannot read the kernel's type information at {BTF_PATH}: {0}")]
    Btf(#[from] btf_rs::Error),
    /// The kernel has no such structure.
    #[error("this kernel's type information has no struct {0}")]
    NoStruct(&'static str),
    /// The structure has no such member.
    #[error("this kernel's struct {structure} has no member {member}: flowskew does not know this kernel yet")]
    NoMember {
        /// Name of the structure.
        structure: &'static str,
        /// Path of the member.
        member: String,
    },
}

/// What the programs have to know of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Globals of the programs, with their values: offsets in bytes, and drop reasons.
    pub globals: Vec<(&'static str, u32)>,
    /// Whether the kernel says why it drops a packet.
    pub tells_drop_reasons: bool,
}

/// The layout of the running kernel.
pub fn resolve() -> Result<Layout, OffsetError> {
    let btf = Btf::from_file(BTF_PATH)?;
    let mut globals = Vec::with_capacity(FIELDS.len() + CGROUP.len() + PACKET.len() + DROP_REASONS.len());
    for &(global, structure, path) in FIELDS {
        globals.push((global, offset_of(&btf, structure, path)?));
    }
    for &(global, structure, path) in CGROUP {
        globals.push((global, offset_of(&btf, structure, path).unwrap_or(0)));
    }
    let packet = packet_layout(&btf);
    let tells_drop_reasons = packet.is_some();
    globals.extend(packet.unwrap_or_default());
    Ok(Layout {
        globals,
        tells_drop_reasons,
    })
}

/// `None` on kernels that do not tell why a packet is dropped.
fn packet_layout(btf: &Btf) -> Option<Vec<(&'static str, u32)>> {
    let mut globals = Vec::with_capacity(PACKET.len() + DROP_REASONS.len());
    for &(global, structure, path) in PACKET {
        globals.push((global, offset_of(btf, structure, path).ok()?));
    }
    let reasons = btf
        .resolve_types_by_name("skb_drop_reason")
        .ok()?
        .into_iter()
        .find_map(|found| match found {
            Type::Enum(found) => Some(found),
            _ => None,
        })?;
    for &(global, name) in DROP_REASONS {
        let member = reasons
            .members
            .iter()
            .find(|member| btf.resolve_name(*member).is_ok_and(|found| found == name))?;
        globals.push((global, member.val()));
    }
    Some(globals)
}

fn offset_of(btf: &Btf, structure: &'static str, path: &[&str]) -> Result<u32, OffsetError> {
    let root = btf
        .resolve_types_by_name(structure)?
        .into_iter()
        .find_map(|found| match found {
            Type::Struct(found) if !found.members.is_empty() => Some(found),
            _ => None,
        })
        .ok_or(OffsetError::NoStruct(structure))?;
    match walk(btf, &root, path)? {
        Some(bits) => Ok(bits / 8),
        None => Err(OffsetError::NoMember {
            structure,
            member: path.join("."),
        }),
    }
}

/// Offset in bits of a path of members.
fn walk(btf: &Btf, structure: &Struct, path: &[&str]) -> Result<Option<u32>, OffsetError> {
    let Some((name, rest)) = path.split_first() else {
        return Ok(Some(0));
    };
    let Some((bits, member)) = find(btf, structure, name)? else {
        return Ok(None);
    };
    if rest.is_empty() {
        return Ok(Some(bits));
    }
    match aggregate(btf, &member)? {
        Some(inner) => Ok(walk(btf, &inner, rest)?.map(|inner| bits + inner)),
        None => Ok(None),
    }
}

/// A member by name, looking into anonymous structures and unions as C does.
fn find(btf: &Btf, structure: &Struct, name: &str) -> Result<Option<(u32, Member)>, OffsetError> {
    for member in &structure.members {
        let member_name = btf.resolve_name(member)?;
        if member_name == name {
            return Ok(Some((member.bit_offset(), member.clone())));
        }
        if member_name.is_empty()
            && let Some(inner) = aggregate(btf, member)?
            && let Some((bits, found)) = find(btf, &inner, name)?
        {
            return Ok(Some((member.bit_offset() + bits, found)));
        }
    }
    Ok(None)
}

/// The structure or union that a member is, through typedefs and qualifiers.
fn aggregate(btf: &Btf, member: &Member) -> Result<Option<Struct>, OffsetError> {
    let mut found = btf.resolve_chained_type(member)?;
    loop {
        found = match &found {
            Type::Struct(inner) | Type::Union(inner) => return Ok(Some(inner.clone())),
            Type::Typedef(inner) => btf.resolve_chained_type(inner)?,
            Type::Const(inner) | Type::Volatile(inner) => btf.resolve_chained_type(inner as &dyn BtfType)?,
            _ => return Ok(None),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_every_field() {
        if !std::path::Path::new(BTF_PATH).exists() {
            eprintln!("skipped: this kernel has no {BTF_PATH}");
            return;
        }
        let layout = resolve().expect("offsets of this kernel");
        let get = |name| {
            layout
                .globals
                .iter()
                .find(|(global, _)| *global == name)
                .map(|(_, offset)| *offset)
                .expect(name)
        };
        // The first words of sock_common are the addresses, in this order, on every kernel since 3.4.
        assert_eq!((get("SKC_DADDR"), get("SKC_RCV_SADDR")), (0, 4));
        assert_eq!(get("SKC_V6_RCV_SADDR"), get("SKC_V6_DADDR") + 16);
        assert!(get("SK_PROTOCOL") > get("SKC_V6_RCV_SADDR"));
    }

    #[test]
    fn a_missing_member_is_named() {
        let Ok(btf) = Btf::from_file(BTF_PATH) else {
            eprintln!("skipped: this kernel has no {BTF_PATH}");
            return;
        };
        let error = offset_of(&btf, "sock", &["sk_cgrp_data", "no_such"]).expect_err("no such member");
        assert!(
            error
                .to_string()
                .contains("struct sock has no member sk_cgrp_data.no_such"),
            "{error}"
        );
        assert!(matches!(
            offset_of(&btf, "no_such", &["x"]),
            Err(OffsetError::NoStruct("no_such"))
        ));
    }
}
