"""Local steps: a task takes several optimizer steps on its samples instead of computing one gradient."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlcore import checks
from dmlcore.cluster.faults import Crash, Faults, ServerCrash
from dmlcore.types import LocalSteps, Policy, Transport

IN_STEP = "one with a push of every worker in each update, as bsp() (with fragments or mixing)"
ALL_STAY = "one that no worker leaves (with fragments or mixing)"
MEAN = " (with control_variates or dynamic the server keeps the mean of what workers remember)"
ALL_REMEMBER = f"one in which no worker loses its memory{MEAN}"


def local_steps(
    steps: int,
    optimizer: Any,
    keep_state: bool = False,
    *,
    prox: float = 0.0,
    control_variates: bool = False,
    dynamic: bool = False,
    normalised: bool = False,
    fragments: int = 1,
    mixing: float = 0.0,
) -> LocalSteps:
    """Makes each task take local optimizer steps on mini-batches and push the change of the parameters.

    From the pulled parameters w_0 a task computes w_{i+1} = w_i + u_i, where u_i is the local optimizer's
    update for the gradient g_i of the i-th mini-batch. After H steps it pushes w_0 - w_H, pulled minus
    reached. The server's optimizer treats that as a gradient. With `optax.sgd(1)` and BSP the next parameters
    are the mean of those that the workers reached (FedAvg, local SGD); with Nesterov momentum at the server
    it is DiLoCo; with `k_batch_async` it is FedBuff.

    With `prox` the gradient is g_i + mu (w_i - w_0), so that tasks stay close to what they pulled (FedProx).

    With `control_variates` it is g_i - c_k + c (SCAFFOLD). Worker k remembers c_k, the mean of the g_i of its
    last task, at first 0, and the server c, the mean of all c_k. So workers whose data differ still go the
    same way, and where training stays, each worker counts alike, whatever its load and the weights of pushes:
    the plain mean of all workers' gradients is 0. Control variates travel with the parameters, and messages
    are twice as large. So that c stays the mean of the c_k, pushes are to be sent exactly, and no fault may
    take a memory: if a worker's process dies by itself, the run ends with a RuntimeError. With local SGD this
    c_k is that of the paper's option II. The server's optimizer sees the parameters only.

    With `prox` and `dynamic` the gradient is g_i + alpha (w_i - w_0 - m_k), where alpha is `prox` and m_k the
    sum of all that worker k has pushed, at first 0; the server's optimizer is given the pushes' mean plus the
    mean of all m_k (FedDyn). So where training stays, the plain mean of all workers' gradients is 0, however
    much their data differ: each worker counts alike, as in the paper, also if its shard is smaller. It is the
    paper's algorithm in rounds, with `optax.sgd(1)` at the server and local steps without weight decay. If
    every push is an update, the mean counts in each, and training may diverge. Messages count as no larger,
    and the same is required as for control variates.

    With `normalised` workers that take more steps count no more for it (FedNova): of pushes with weights w_k,
    which say how much each worker's data count, and numbers of steps tau_k, push k gets the weight
    w_k tau / tau_k in its update. Here tau is the mean of the tau_k by the w_k. So an update of a single push
    stays as it is, as under `asp`. The weights do not sum to 1: an optimizer that does not depend on the
    scale of gradients makes a larger or a smaller step (see `train`).

    With `fragments` the parameters are divided, and one fragment after the other is synchronised (Streaming
    DiLoCo). A worker keeps its own parameters x and goes on from them. Task c pushes w_0 - x_H of fragment
    c mod P only, and its answer brings only this one, so messages are a P-th as large. The worker merges
    it, x = mixing x + (1 - mixing) w, and keeps the rest of x. The server's optimizer has a state for each
    fragment and counts the updates of this one. `steps` is the time from one fragment to the next, the
    paper's H / P. With the transport `pipelined()` a worker computes another task while its push and the
    answer travel: the paper's overlap, tau = `steps`. The policy must have a push of every worker in each
    update, as BSP, and no worker may leave; if its process dies, the run ends with a RuntimeError.

    Guarantees: `local_steps(1, optax.sgd(1))` pushes the gradient. Without pushes under way the server's mean
    is that of the c_k or m_k, whatever the weights of pushes, up to rounding. One fragment without mixing is
    DiLoCo, bit for bit.

    The `batch_size` of the run is the size of a mini-batch. A task has H x batch_size samples, which take
    computing time and count towards `samples=` as usual. Load rules divide H x batch_size x P samples among P
    workers. A worker with fewer samples takes fewer steps, ceil(samples / batch_size), the last one possibly
    on a smaller mini-batch.

    Args:
        steps: the papers' H, the number of local steps per task, >= 1.
        optimizer: the local optax optimizer.
        keep_state: True: a worker's next task continues with the state of the local optimizer, as in DiLoCo.
            False: each task starts with a new state, as in FedAvg. Kept states, control variates and
            `dynamic` require that every task is in an update if its push arrives, in its worker's order. A
            `Crash` says whether states are lost.
        prox: FedProx's mu, FedDyn's alpha, >= 0. Default: 0, no proximal term.
        control_variates: whether control variates correct the steps. The aggregate is then `mean`.
        dynamic: whether the proximal term, `prox` > 0, is FedDyn's. The aggregate is then `mean`; not with
            control variates, `normalised`, fragments or mixing.
        normalised: whether pushes are normalised by their numbers of steps, which are then to be steps of
            SGD without momentum and `prox`. No task may keep a cached copy, and the aggregate is one that
            sums pushes by their weights.
        fragments: the paper's P, >= 1 and at most the number of parameters: contiguous parts of the
            flattened parameters, as equal as can be. Default: 1, all parameters are synchronised at once.
        mixing: the paper's alpha, in [0, 1): the worker's share in what it merges. Default: 0, what has come
            replaces its own.

    Returns:
        The local steps, for the argument `local` of `Method` or `train`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import optax
    >>> local_steps(8, optax.sgd(0.1)), local_steps(8, optax.sgd(0.1), control_variates=True)
    (local_steps(8), local_steps(8, control_variates=True))

    Reference: McMahan et al. 2017, algorithm 1; Douillard et al. 2023, "DiLoCo", algorithm 1; Li et al. 2020,
    "Federated optimization in heterogeneous networks", algorithm 2; Karimireddy et al. 2020, "SCAFFOLD:
    stochastic controlled averaging for federated learning", algorithm 1; Wang et al. 2020, "Tackling the
    objective inconsistency problem in heterogeneous federated optimization", section 4, FedNova; Acar et al.
    2021, "Federated learning based on dynamic regularization", algorithm 1; Douillard et al. 2025, "Streaming
    DiLoCo with overlapping communication", algorithm 2.
    """
    steps = checks.integer("steps", steps, low=1, high=2**20)
    options = {
        "keep_state": checks.boolean("keep_state", keep_state),
        "prox": checks.real("prox", prox, low=0),
        "control_variates": checks.boolean("control_variates", control_variates),
        "dynamic": checks.boolean("dynamic", dynamic),
        "normalised": checks.boolean("normalised", normalised),
        "fragments": checks.integer("fragments", fragments, low=1),
        "mixing": checks.real("mixing", mixing, low=0, below=1),
    }
    optimizer = checks.check_optax("optimizer", optimizer)
    if normalised:
        check_counted("optimizer", optimizer, np.zeros(2, np.float32))
    if dynamic and not options["prox"]:
        checks.fail("prox", prox, "FedDyn's alpha, > 0 (with dynamic=True)")
    made, usual = LocalSteps("", steps, optimizer, **options), LocalSteps._field_defaults
    for option in ("control_variates", "dynamic", "normalised"):
        if made.streams and options[option]:
            checks.fail(option, True, "False (with fragments or mixing)")
        if dynamic and option != "dynamic" and options[option]:
            checks.fail(option, True, "False (with dynamic=True)")
    if normalised and prox:
        checks.fail("prox", prox, "0 (with normalised=True, which counts steps of plain SGD)")
    told = [f"{option}={given}" for option, given in options.items() if given != usual[option]]
    return made._replace(name=f"local_steps({', '.join([f'{steps}', *told])})")


def check_counted(name: str, optimizer: Any, like: Any) -> None:
    """Raises ValueError if an optimizer for such parameters has moments, or another array of floats."""
    import jax  # which the optimizer has imported, and a timeline does without

    found: Any = ()
    with contextlib.suppress(Exception):
        found = jax.eval_shape(optimizer.init, like)
    if any(leaf.shape and np.issubdtype(leaf.dtype, np.floating) for leaf in jax.tree.leaves(found)):
        checks.fail(name, optimizer, "one without momentum or other moments (as normalised=True)")


def check_aggregated(local: LocalSteps, aggregate: Any) -> None:
    """Raises ValueError if an aggregate does not combine pushes as local steps need it."""
    if local.controlled and not aggregate.plain:
        checks.fail("aggregate", aggregate, f"mean(){MEAN}")
    if local.normalised and aggregate.reduce is not None:
        expected = "one that sums pushes by their weights (with normalised=True, which changes these)"
        checks.fail("aggregate", aggregate, expected)


def check_controlled(transport: Transport, faults: Sequence[Any]) -> None:
    """Raises ValueError if the server could not keep the mean of what workers remember."""
    if transport.push:
        checks.fail("transport", transport, f"one that sends pushes exactly{MEAN}")
    for each in faults:
        if isinstance(each, ServerCrash) or (isinstance(each, Crash) and not each.keeps_memory):
            kept = "faults after which workers have their memory, as Crash(..., keeps_memory=True)"
            checks.fail("cluster", each, kept + MEAN)


def check_streamed(
    local: LocalSteps, policy: Policy, transport: Transport, faults: Faults, num_parameters: int
) -> None:
    """Raises ValueError if workers that keep their own parameters would not all be in every update.

    Policies that declare a lead of 0 may still do without some pushes, which only their traces tell.
    """
    if num_parameters and local.fragments > num_parameters:
        checks.fail("fragments", local.fragments, f"at most {num_parameters} (the number of parameters)")
    if policy.max_lead != 0:
        checks.fail("policy", policy, IN_STEP)
    if transport.changes_values:
        checks.fail("transport", transport, "one that sends values exactly (with fragments or mixing)")
    if transport.pipelined and local.fragments == 1:
        checks.fail("fragments", 1, "at least 2 (with mixing in a pipeline, where a push would count twice)")
    if faults.forget:
        checks.fail("cluster", faults, ALL_STAY)
