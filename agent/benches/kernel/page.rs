//! The page of the documentation: in, results; out, Markdown.

use crate::{
    results::{Goal, Results},
    table,
};

/// Says what was measured, where, how, and the figures.
pub fn render(results: &Results, goals: &[Goal]) -> String {
    let machine = &results.machine;
    let plan = &results.plan;
    format!(
        "# Benchmarks of the kernel programs

Written by `cargo xtask bench kernel --write-docs`; run it to have the figures of your machine. Compare ratios:
nanoseconds and connections per second are those of this machine, and of what else it did.

- Machine: {processor}, {processors} processors, {memory:.0} GB, {architecture}, Linux {kernel}. Load average before the \
start: {load}.
- Agent: {build} build. Peers: {peers}.
- Connections: TCP over IPv4 on loopback, both ends in {threads} threads of one process, in a network namespace with connection
tracking. Client and server are on one kernel, so each flow has two sockets; on a node most have one.
- *flowskew-agent* has every endpoint of the load watched and the address prefixes of 27 nodes set, so each flow is classed,
counted, and told to the agent one by one. *Nothing watched*: it has no assignment, and counts.
- Figures are medians over rounds; in parentheses the interval that holds the true median with 95 % confidence. *To those
without* and *to the cheaper peer* are ratios within one round.
- Time in the programs: BPF statistics of the kernel, which include the cost of taking them (see the empty program). {cost_rounds}
rounds; in each, every contender sees {cost_cycles} times {cost_flows} flows open, then close. Caches are as the load leaves
them. All programs of a contender count. The time outside of programs, such as that of the tracepoint itself, is not in it; connections per second contain it.
- Connections per second: {rate_rounds} rounds of {slice:.2} s with each contender, and as long before and after without.
- Memory: entries of FLOWS are synthetic, written from outside. Sizes of maps are the kernel's own account (`memlock`), which
leaves out what its allocator rounds up; the last column has that, and all else that happened on the machine.
- tcplife and bpftrace show less than the agent counts; the script is `agent/benches/kernel/peer.bt`.
{tables}",
        processor = machine.processor,
        processors = machine.processors,
        memory = machine.memory as f64 / 1e9,
        architecture = machine.architecture,
        kernel = machine.kernel,
        load = machine.load_average,
        build = machine.build,
        peers = if machine.peers.is_empty() { "none".into() } else { machine.peers.join(", ") },
        threads = results.rate.threads,
        cost_rounds = plan.cost_rounds,
        cost_cycles = plan.cost_cycles,
        cost_flows = plan.cost_flows,
        rate_rounds = plan.rate_rounds,
        slice = plan.rate_slice.as_secs_f64(),
        tables = table::all(results, goals),
    )
}
