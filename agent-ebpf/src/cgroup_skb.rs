//! Hook: `cgroup_skb/ingress` at the root of the cgroup v2 hierarchy: each packet before a socket gets it; since Linux 4.10.
//! Attached only while an endpoint of UDP is watched.

use aya_ebpf::{EbpfContext, helpers::generated::bpf_skb_cgroup_id, macros::cgroup_skb, programs::SkBuffContext};
use flowskew_agent_ebpf::{LedgerKey, PROTOCOL_UDP, UdpFlowKey};

use crate::{
    event::is_watched,
    packet::{self, Bytes},
    udp,
};

/// The packet may go on: this program only looks.
const PASS: i32 = 1;

#[cgroup_skb(ingress)]
pub fn cgroup_skb(ctx: SkBuffContext) -> i32 {
    if let Some(packet) = packet::read(&Buffer(&ctx))
        && packet.protocol == PROTOCOL_UDP
        && is_watched(&packet.dialled())
    {
        udp::arrived(&UdpFlowKey {
            key: LedgerKey {
                address: packet.destination,
                // SAFETY: the context is that of this program.
                cgroup_id: unsafe { bpf_skb_cgroup_id(ctx.as_ptr().cast()) },
                port: packet.destination_port,
                protocol: PROTOCOL_UDP,
                padding: 0,
                padding_word: 0,
            },
            client: packet.source,
            client_port: packet.source_port,
            padding: [0; 6],
        });
    }
    PASS
}

/// The packet of this hook begins with its network header.
struct Buffer<'a>(&'a SkBuffContext);

impl Bytes for Buffer<'_> {
    #[inline(always)]
    fn read<T: Copy>(&self, offset: u32) -> Option<T> {
        self.0.load(offset as usize).ok()
    }
}
