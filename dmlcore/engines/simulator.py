"""`simulate`, which runs a policy on a virtual clock without gradients."""

from collections.abc import Sequence
from typing import Any

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.engines.spec import RunSpec
from dmlcore.engines.virtual import make_timeline
from dmlcore.trace import Trace
from dmlcore.types import Load, Method, Policy, Shape, Transport, Watch


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
    tensor_shapes: Sequence[Shape] | None = None,
    watch: Watch | None = None,
) -> Trace:
    """Runs a policy on a virtual clock and returns its trace.

    Events at equal times are handled in the order in which their tasks started. The server takes no time
    unless the cluster has one that does, see `Cluster.with_server`.

    Args:
        policy: the server's rule, or a `Method`.
        cluster: speeds, links, stragglers, faults and server.
        updates: stop after this number of server updates. Give exactly one of `updates`, `seconds` and
            `samples`; the other two are None.
        seconds: stop at this virtual time in seconds, or None.
        samples: stop when applied updates contain this number of samples, or None.
        seed: seed of all random times; with the same seed all policies meet the same stragglers.
        batch_size: samples of one worker's task; a load rule divides `batch_size * num_workers` samples.
        load: rule for the batch sizes, or its name; not used if the policy sizes all tasks. Default: `equal`.
        transport: how parameters and gradients travel, or its name. Default: `plain`.
        parameter_bytes: size of the parameters in bytes; they travel in both directions.
        tensor_shapes: shapes of the parameters' tensors, such as [(64, 32), 32], for transports with codecs;
            n is a vector of n values. Default: one vector of `parameter_bytes / 4` values, of which
            `power_sgd` sends all.
        watch: function that shows the training to a policy that watches losses or gradients; `train` passes
            its own. None: the policy watches nothing.

    Returns:
        The trace, validated.

    Raises:
        ValueError: an argument is wrong, or a function of a user's own policy, load or jitter returns a wrong
            value; the message names the function, the worker and the clock.
        RuntimeError: the policy deadlocks: every worker waits and no task is in flight.

    Example:
        >>> from dmlcore.methods.policies import ssp
        >>> trace = simulate(ssp(staleness=3), Cluster.uniform(4), updates=100)
        >>> len(trace.updates), round(trace.end_time, 6)
        (100, 0.8)
    """
    stop: Any = {"updates": updates, "seconds": seconds, "samples": samples}
    how: Any = {"seed": seed, "batch_size": batch_size, "load": load, "transport": transport}
    sizes: Any = {"parameter_bytes": parameter_bytes, "tensor_shapes": tensor_shapes}
    spec = RunSpec.checked(policy, cluster, **stop, **how, **sizes)
    if spec.policy.on_observation is None:
        watch = None
    elif watch is None:
        checks.fail("policy", policy, "one that watches no training", "dml.train")
    return make_timeline(spec, watch)
