"""`simulate`: a policy on a virtual clock, without gradients."""

from __future__ import annotations

from collections.abc import Sequence

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.engines.spec import RunSpec
from dmlcore.engines.virtual import make_timeline
from dmlcore.trace import Trace
from dmlcore.types import Load, Method, Policy, Transport, Watch


def simulate(
    policy: Policy | Method,
    cluster: Cluster,
    *,
    updates: int | None = None,
    seconds: float | None = None,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    load: Load | str | None = None,
    transport: Transport | str | None = None,
    parameter_bytes: int = 0,
    tensor_sizes: Sequence[int] | None = None,
    watch: Watch | None = None,
    progress: bool = False,
) -> Trace:
    """Runs a policy on a virtual clock and returns its trace.

    Events at equal times are taken in the order in which their tasks started. The server takes time where the
    cluster says so, see `Cluster.with_server`.

    Args:
        policy: the server's rule, or a `Method`.
        cluster: speeds, links, stragglers, faults.
        updates: stop after this number of server updates. Give exactly one of `updates`, `seconds` and
            `samples`; the other two are None.
        seconds: stop at this virtual time, or None.
        samples: stop when this number of samples is in applied updates, or None.
        seed: of all draws; the same seed means the same stragglers under every policy.
        batch_size: samples of one worker's task; a load rule shares out `batch_size * num_workers`.
        load: rule for the batch sizes, where the policy does not size tasks itself. Default: `equal`.
        transport: what is sent. Default: `plain`.
        parameter_bytes: size of the parameters, which travel both ways.
        tensor_sizes: how many numbers each tensor of the parameters has, for transports that round. Default:
            one tensor, of 4 bytes a number.
        watch: shows the training to a policy that watches losses or gradients; `train` brings its own.
            None: only for policies that watch nothing.
        progress: shows a bar while the run is made.

    Returns:
        The trace, validated.

    Raises:
        ValueError: an argument is wrong, or what the policy, the load or a jitter of one's own does; the
            message names it, the worker and the clock.
        RuntimeError: the policy deadlocks: every worker waits and nothing is in flight.

    Example:
        >>> from dmlcore.methods.policies import ssp
        >>> trace = simulate(ssp(staleness=3), Cluster.uniform(4), updates=100)
        >>> len(trace.updates), round(trace.end_time, 6)
        (100, 0.8)
    """
    spec = RunSpec.checked(
        policy,
        cluster,
        updates=updates,
        seconds=seconds,
        samples=samples,
        seed=seed,
        batch_size=batch_size,
        load=load,
        transport=transport,
        parameter_bytes=parameter_bytes,
        tensor_sizes=tensor_sizes,
    )
    if spec.policy.on_observation is None:
        watch = None
    elif watch is None:
        checks.fail("policy", policy, "one that watches no training, where there is none: `train` it")
    if not checks.boolean("progress", progress):
        return make_timeline(spec, watch)
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        shown = bar.add_task(spec.policy.name, total=1.0)
        return make_timeline(spec, watch, lambda share: bar.update(shown, completed=share))
