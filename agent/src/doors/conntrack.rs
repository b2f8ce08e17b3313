//! The node's connection tracking, asked through netlink: in, one direction of a flow; out, the front door it came
//! through.
//!
//! The socket belongs to the network namespace of the thread that opens it. Only a thread that may stay there opens
//! one.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use flowskew_agent_ebpf::{Flow, LedgerKey, PROTOCOL_TCP};
use rustix::{
    fs::{fstat, stat},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use thiserror::Error;

use super::message::{Answer, Tuple, answer, request};

/// The network namespace of the calling thread.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The kernel answers within the call that asks; this ends a wait that would be forever.
const PATIENCE: Duration = Duration::from_secs(1);

/// More than any entry takes.
const ANSWER_BYTES: usize = 8_192;

/// Why front doors cannot be looked up.
#[derive(Debug, Error)]
pub enum ConntrackError {
    /// No such namespace.
    #[error("network namespace {path}: {error}; set --node-netns to that of the node")]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The process may not go there.
    #[error("network namespace {path} cannot be entered: {error}; the agent needs CAP_SYS_ADMIN for that")]
    Enter {
        /// Its file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// Not allowed to ask.
    #[error("connection tracking may not be read: the agent needs CAP_NET_ADMIN")]
    Capability,
    /// The kernel has nobody to ask.
    #[error("the kernel does not answer for connection tracking ({0}): load the module nf_conntrack_netlink")]
    Module(io::Error),
    /// Anything else.
    #[error("connection tracking: {0}")]
    Io(#[from] io::Error),
}

/// A socket that asks the connection tracking of one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Conntrack {
    /// Moves the calling thread into the namespace at `path`, opens a socket there, and checks that somebody answers.
    pub fn open(path: &Path) -> Result<Self, ConntrackError> {
        enter(path)?;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::NETFILTER),
        )
        .map_err(|error| ConntrackError::Module(error.into()))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(io::Error::from)?;
        let mut conntrack = Self {
            socket,
            sequence: 0,
            buffer: vec![0; ANSWER_BYTES],
        };
        match conntrack.look_up(&Tuple::answering(&NO_FLOW)) {
            Ok(_) => Ok(conntrack),
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::PERM) => ConntrackError::Capability,
                Some(Errno::INVAL | Errno::OPNOTSUPP) => ConntrackError::Module(error),
                _ => error.into(),
            }),
        }
    }

    /// The front door of the flow that is answered this way; `Unknown` if connection tracking does not know it. After
    /// an error the socket may hold answers that nobody waits for: open another.
    pub fn look_up(&mut self, answering: &Tuple) -> io::Result<Answer> {
        self.sequence = self.sequence.wrapping_add(1);
        let Some(request) = request(answering, self.sequence) else {
            return Ok(Answer::Unknown);
        };
        send(&self.socket, &request, SendFlags::empty())?;
        loop {
            let (length, _) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let message = self.buffer.get(..length).unwrap_or_default();
            if let Some(answer) = answer(message, answering, self.sequence)? {
                return Ok(answer);
            }
        }
    }
}

/// Nothing answers from port 0.
const NO_FLOW: Flow = Flow {
    key: LedgerKey {
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
        cgroup_id: 0,
        port: 0,
        protocol: PROTOCOL_TCP,
        padding: 0,
        padding_word: 0,
    },
    client: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
    opened_at_ns: 0,
    client_port: 0,
    source_class: 0,
    padding: 0,
    padding_word: 0,
};

/// Moves the calling thread; nothing to do, and no capability needed, if it is there already.
fn enter(path: &Path) -> Result<(), ConntrackError> {
    let namespace = |error: io::Error| ConntrackError::Namespace {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(namespace)?;
    let wanted = fstat(&file).map_err(|error| namespace(error.into()))?;
    let present = stat(OWN_NAMESPACE).map_err(io::Error::from)?;
    if (wanted.st_dev, wanted.st_ino) == (present.st_dev, present.st_ino) {
        return Ok(());
    }
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| ConntrackError::Enter {
        path: path.to_owned(),
        error: error.into(),
    })
}
