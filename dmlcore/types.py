"""The words that policies and engines speak, in plain Python: a push comes in, a decision goes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from dmlcore import notebook


class Push(NamedTuple):
    """A finished task as the server sees it arrive.

    Args:
        worker: that computed it, 0-based.
        clock: how many tasks this worker had finished before it, 0-based.
        version_read: the server version whose parameters the worker last pulled.
        time: when it arrived, seconds since the start of the run.
        compute_seconds: how long the worker computed.
        samples: batch size of the task.
        keeps_copy: whether the worker has gone on by itself, on the copy that it has; see `Policy.keep_copy`.
    """

    worker: int
    clock: int
    version_read: int
    time: float
    compute_seconds: float
    samples: int
    keeps_copy: bool = False


class Start(NamedTuple):
    """Let a worker begin its next task: it pulls the newest version and computes.

    Args:
        worker: that starts, 0-based.
        batch_size: samples in the task; None asks the load rule.
        clock: number of the task; None: the worker's next. One that comes back may skip to where others are.
    """

    worker: int
    batch_size: int | None = None
    clock: int | None = None


class Decision(NamedTuple):
    """What the server does about a push, or about a timer. Engines carry the parts out in the order of the
    fields.

    Args:
        apply: `(worker, clock, weight)` of the pushes that form the next update: the optimizer is given
            `sum weight * gradient`, unless an `Aggregate` says otherwise. Empty: no update.
        drop: `(worker, clock)` of pushes that will never be applied.
        cancel: workers whose task in flight is thrown away.
        start: workers that begin their next task, after the update.
        wake: `(seconds, token)` sets a timer: after so many seconds, >= 0, the policy is called with the
            token, any plain value, see `Policy.on_wake`. They count from the decision, after its update
            where the server takes time over it; after `math.inf` seconds it is never called. None: no timer.
    """

    apply: Sequence[tuple[int, int, float]] = ()
    drop: Sequence[tuple[int, int]] = ()
    cancel: Sequence[int] = ()
    start: Sequence[Start] = ()
    wake: tuple[float, Any] | None = None


NOTHING_YET = Decision()  # of most pushes before a barrier; servers know it, so that these cost less


class Observation(NamedTuple):
    """What a server has seen of its training since it last looked; lists have an entry for each update since,
    but those on a real clock that came before the server was restarted.

    Args:
        update: updates made so far.
        time: seconds since the start of the run.
        loss: the problem's, of the newest parameters.
        tasks: gradients in each update.
        samples: samples in each update.
        squared_norms: |g|^2 of each update's gradient g: the weighted sum, or what `Aggregate` makes of it.
        products: g . g' with the sum g' of the update before; 0 for the first of the run.
    """

    update: int
    time: float
    loss: float
    tasks: Sequence[int] = ()
    samples: Sequence[int] = ()
    squared_norms: Sequence[float] = ()
    products: Sequence[float] = ()


class Progress(NamedTuple):
    """How far a timeline has come, told to what trains along it while it is made."""

    time: float  # seconds since the start of the run
    num_updates: int  # made so far
    record: Any  # `dmlcore.trace.record.Rows`: each task that arrived or was cut
    live: Collection[int]  # versions that tasks still read which are not applied yet, and the newest
    looked: int = 0  # updates made at the last look
    oldest: int = 0  # row of the record from which on tasks may still be applied
    life: int = 0  # how often the server has gone back to a checkpoint; what it lost, it has never trained


Watch = Callable[[Progress], Observation]


class Policy(NamedTuple):
    """A server's rule: which workers wait, what forms an update, which workers start when.

    Every worker starts its clock 0 on version 0 at time 0; from then on only decisions start work. The state
    may be updated in place, and must follow from the calls alone: an engine that restarts makes them again.

    Args:
        name: the call that makes this policy, such as `ssp(staleness=3)`.
        init: number of workers -> state. Raises ValueError where the policy cannot run on so many.
        on_push: state, push -> state, decision.
        max_lead: the most clocks by which a worker may lead the slowest. None: no bound is
            declared.
        on_leave: state, worker, time -> state, decision, when a worker is gone: its task in flight is lost,
            what it has pushed stays. None: the policy runs only where no worker leaves.
        on_join: state, worker, time -> state, decision, when a worker that was gone has rejoined, without a
            cached copy. None: the policy runs only where no worker rejoins.
        on_observation: state, observation -> state, for a policy that watches losses or gradients: at the
            start, after updates 1, 2, 4, 8, ..., and then after every `observe_every`-th, once all is decided
            that follows from them. None: the policy watches nothing.
        observe_every: most updates between two observations.
        batch_size: samples of every worker's first task, for a policy that sizes all tasks: no load rule is
            asked or told. None asks the load rule.
        sizes: of tasks that may come later, so that real engines compile for them before the clock starts.
        on_pull: state, worker -> (copy_clock, weight): a worker pulls, and is told these two numbers with the
            parameters. For policies with `keep_copy`. None: it is told (0, 1.0).
        keep_copy: copy_clock, clock -> whether a worker that has computed begins task `clock` on the copy
            that it has pulled, plus its own updates since (read-my-writes), each with the weight that it was
            told. The worker asks, without the server. `on_push` is then shown `keeps_copy`, must not start
            the worker, and must apply the push with that weight. None: every task pulls.
        on_wake: state, token, time -> state, decision, when a timer fires that an earlier decision has set
            by `wake`; first at time 0 with token None, when all workers have begun. Several timers may be
            pending, and none can be cancelled: ignore a token that is out of date. At equal times faults come
            first, then pushes, in the order in which their tasks began, then timers, in the order in which
            they were set. On a real clock a timer fires as soon as the server can, and all pushes that
            arrived before it was due come first. It takes none of the server's time, but a decision waits
            for an update under way. Timers that were due while the server was down fire when it is back.
            None: the policy sets no timers.

    >>> import dmlcore as dml
    >>> def on_push(state, push):  # every push is an update, and its worker starts again
    ...     return state, Decision(apply=[(push.worker, push.clock, 1.0)], start=[Start(push.worker)])
    >>> policy = Policy("mine()", init=lambda num_workers: None, on_push=on_push)
    >>> dml.simulate(policy, dml.Cluster.from_speeds([32, 16]), updates=3)
    Trace(mine(), 2 workers, 4 tasks, 3 updates)
    """

    name: str
    init: Callable[[int], Any]
    on_push: Callable[[Any, Push], tuple[Any, Decision]]
    max_lead: float | None = None
    on_leave: Callable[[Any, int, float], tuple[Any, Decision]] | None = None
    on_join: Callable[[Any, int, float], tuple[Any, Decision]] | None = None
    on_observation: Callable[[Any, Observation], Any] | None = None
    observe_every: int = 1
    batch_size: int | None = None
    sizes: tuple[int, ...] = ()
    on_pull: Callable[[Any, int], tuple[int, float]] | None = None
    keep_copy: Callable[[int, int], bool] | None = None
    on_wake: Callable[[Any, Any, float], tuple[Any, Decision]] | None = None

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        return self.name


class Load(NamedTuple):
    """How many samples each worker's next task has.

    Args:
        name: the call that makes this rule.
        init: number of workers, total batch of all workers -> state. Raises ValueError where the rule cannot
            share out so much over so many.
        size: state, worker -> samples; asked when a task starts.
        observe: state, push -> state, before the policy decides about it; None where sizes never change.
        on_leave: state, worker -> state, when a worker is gone, before the policy decides; None: not told.
        on_join: state, worker -> state, when it is back, likewise.
    """

    name: str
    init: Callable[[int, int], Any]
    size: Callable[[Any, int], int]
    observe: Callable[[Any, Push], Any] | None = None
    on_leave: Callable[[Any, int], Any] | None = None
    on_join: Callable[[Any, int], Any] | None = None

    def __repr__(self) -> str:
        return self.name


class Codec(NamedTuple):
    """How arrays are rounded on their way, and how many bytes they then are.

    Pure functions, which `dmlcore.methods.codecs.transmit` composes, also inside compiled loops. Memory is
    one pytree for both ends of a link, since what the receiver remembers, the sender knows.

    Args:
        name: the call that makes this codec, such as `affine(bits=8)`, by which traces know it.
        num_bytes: number of values of each tensor -> bytes that travel.
        init: a tree like what is sent -> memory; () where there is none.
        encode: random key, memory, tree -> message, next memory. The key may be None where nothing is drawn.
        decode: message, memory as it was before the message -> tree.
    """

    name: str
    num_bytes: Callable[[Sequence[int]], int]
    init: Callable[[Any], Any]
    encode: Callable[[Any, Any, Any], tuple[Any, Any]]
    decode: Callable[[Any, Any], Any]

    def __repr__(self) -> str:
        return self.name


class Transport(NamedTuple):
    """What travels between server and worker, and when.

    Args:
        name: the call that makes this transport.
        pull_bytes: parameter bytes -> bytes the worker receives; not asked where `pull` rounds.
        push_bytes: parameter bytes -> bytes the server receives; not asked where `push` rounds.
        pull: `Codec` of the parameters, on their way to a worker; None: as they are.
        push: `Codec` of the gradients, on their way to the server; None: as they are.
        pipelined: a worker computes its next task while its last push and the answer to it are under way.
        own_steps: and adds its own step, which the copy that it fetched lacks.
    """

    name: str
    pull_bytes: Callable[[int], int]
    push_bytes: Callable[[int], int]
    pull: Codec | None = None
    push: Codec | None = None
    pipelined: bool = False
    own_steps: bool = False

    @property
    def changes_values(self) -> bool:
        """Whether anything arrives, or is computed on, that is not what was sent."""
        return bool(self.pull or self.push or self.own_steps)

    def __repr__(self) -> str:
        return self.name


class LocalSteps(NamedTuple):
    """Local optimizer steps that a task takes on its samples; `dmlcore.local_steps` makes them.

    Args:
        name: the call that makes them, without the optimizer.
        steps: the number of local steps of a task.
        optimizer: the local optax optimizer.
        keep_state: whether a worker's next task continues from the state of that optimizer.

    >>> import dmlcore as dml
    >>> import optax
    >>> local = dml.local_steps(8, optax.sgd(0.1))
    >>> local.name, local.steps, local.keep_state
    ('local_steps(8)', 8, False)
    """

    name: str
    steps: int
    optimizer: Any
    keep_state: bool = False

    def __repr__(self) -> str:
        return self.name


class Aggregate(NamedTuple):
    """How the pushes of one update are made into one gradient, which the optimizer is given.

    With pushes g_1, ..., g_m of weights w_1, ..., w_m, those that the policy gives, it is
    sum_i w_i each(g_i), or (sum_i w_i) reduce(each(g_1), ..., each(g_m)) where there is a `reduce`: each push
    then has one vote, whatever its weight, and the weights scale the step. A push of weight 0 has no vote.
    Pushes are what has arrived: decoded, compensated, and with local steps differences of parameters.

    Pure functions of JAX, which are traced once: Python numbers in them, such as a threshold, are inputs of
    the compiled loop. `dml.aggregate` has factories.

    Args:
        name: the call that makes this rule, such as `clipped(1.0)`, by which traces know it.
        each: one push -> what counts of it, a tree like the push; None: all of it.
        reduce: pushes, present -> one gradient, a tree like one push; None: the weighted sum. Leaves of
            `pushes` have a leading axis of M places, of which the first m hold pushes, by worker and clock,
            and the others 0; `present` says which do, bools, (M,). The result must not depend on M.
    """

    name: str
    each: Callable[[Any], Any] | None = None
    reduce: Callable[[Any, Any], Any] | None = None

    @property
    def plain(self) -> bool:
        """Whether it is the weighted sum of the pushes as they are."""
        return self.each is None and self.reduce is None

    def __repr__(self) -> str:
        return self.name


class Method(NamedTuple):
    """A way to train, such as a paper's method: a policy, and what goes with it.

    Args:
        policy: the server's rule.
        load: batch sizes; None takes those of the comparison, `equal()` by default.
        transport: what is sent; None takes that of the comparison, `plain()` by default.
        optimizer: optax optimizer; None takes the one of the comparison.
        compensation: lambda of delay compensation: of a gradient g that was taken on w_read the server takes
            g + lambda g * g * (w - w_read), with w what it has now (DC-ASGD, Zheng et al. 2017); None takes
            that of the comparison, 0 by default.
        local: `local_steps` of a task; None takes those of the comparison, one gradient by default.
        aggregate: how the pushes of an update are made into one gradient, see `dml.aggregate`; None takes
            that of the comparison, `mean()` by default.

    >>> import dmlcore as dml
    >>> Method(dml.bsp(), load="equal", aggregate="median()")
    Method(policy=bsp(), load='equal', transport=None, optimizer=None, compensation=None, local=None,
           aggregate='median()')
    """

    policy: Policy
    load: Load | str | None = None
    transport: Transport | str | None = None
    optimizer: Any = None
    compensation: float | None = None
    local: LocalSteps | None = None
    aggregate: Aggregate | str | None = None
