"""The types that policies and engines exchange, in plain Python: a `Push` in, a `Decision` out."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from dmlcore import notebook


class Push(NamedTuple):
    """A finished task, as it arrives at the server.

    Args:
        worker: number of the worker that computed it, 0-based.
        clock: number of the task, 0-based: how many tasks this worker finished before.
        version_read: the version of the parameters that the worker last pulled.
        time: when it arrived, in seconds from the start of the run.
        compute_seconds: compute time of the task in seconds.
        samples: batch size of the task in samples.
        keeps_copy: whether the worker has already started its next task on its cached copy, see
            `Policy.keep_copy`.
    """

    worker: int
    clock: int
    version_read: int
    time: float
    compute_seconds: float
    samples: int
    keeps_copy: bool = False


class Start(NamedTuple):
    """Starts a worker's next task: the worker pulls the newest version and computes.

    Args:
        worker: number of the worker, 0-based.
        batch_size: samples in the task. None: the load rule decides.
        clock: number of the task. None: the worker's next clock. A worker that rejoins may skip clocks, to
            catch up with the others.
    """

    worker: int
    batch_size: int | None = None
    clock: int | None = None


class Decision(NamedTuple):
    """What the server does after a push, a timer or another event.

    Engines carry out the parts in the order of the fields.

    Args:
        apply: `(worker, clock, weight)` of each push in the next update. The optimizer receives
            `sum weight * gradient`, unless an `Aggregate` combines the pushes in another way. Empty: no
            update.
        drop: `(worker, clock)` of pushes that will never be applied.
        cancel: numbers of workers whose tasks in flight are discarded.
        start: tasks that begin after the update, one `Start` per worker.
        wake: `(seconds, token)` sets a timer: after that many seconds, >= 0, the engine calls
            `Policy.on_wake` with the token, which is any plain value. The time counts from the decision, or
            from the end of its update if the update takes server time. With `math.inf` seconds the timer
            never fires. None: no timer.
    """

    apply: Sequence[tuple[int, int, float]] = ()
    drop: Sequence[tuple[int, int]] = ()
    cancel: Sequence[int] = ()
    start: Sequence[Start] = ()
    wake: tuple[float, Any] | None = None


NOTHING_YET = Decision()  # for most pushes before a barrier; the server recognises this object, which is fast


class Observation(NamedTuple):
    """The progress of training since the last observation, for a policy that watches it.

    The lists have one entry per update since the last observation. On a real clock, updates made before a
    restart of the server are missing.

    Args:
        update: number of updates made so far.
        time: seconds from the start of the run.
        loss: the problem's loss at the newest parameters.
        tasks: number of gradients in each update.
        samples: number of samples in each update.
        squared_norms: |g|^2 of each update's gradient g, the weighted sum or the result of an `Aggregate`.
        products: g . g', where g' is the gradient of the update before; 0 for the first update of the run.
    """

    update: int
    time: float
    loss: float
    tasks: Sequence[int] = ()
    samples: Sequence[int] = ()
    squared_norms: Sequence[float] = ()
    products: Sequence[float] = ()


class Progress(NamedTuple):
    """The state of a timeline that is being made, for the training that runs along with it."""

    time: float  # seconds from the start of the run
    num_updates: int  # made so far
    record: Any  # `dmlcore.trace.record.Record`: each task that arrived or was cut
    live: Collection[int]  # versions read by tasks that may still be applied, and the newest version
    looked: int = 0  # updates made at the last observation
    oldest: int = 0  # first row of the record whose task may still be applied
    life: int = 0  # how often the server went back to a checkpoint; lost updates count as never trained
    times: Sequence[float] = ()  # when each update was made, seconds from the start of the run
    incidents: Sequence[Mapping[str, Any]] = ()  # faults so far, as in a trace's metadata


Watch = Callable[[Progress], Observation]


class Policy(NamedTuple):
    """A server's rule: which workers wait, which pushes form an update, and when workers start.

    Every worker starts its clock 0 on version 0 at time 0, unless `on_begin` names those that do; after that
    only decisions start work. Functions
    below are written as arguments -> results. Times are seconds from the start of the run. A function may
    update the state in place. The state must depend on the calls alone, because an engine that restarts
    repeats them.

    Args:
        name: the call that makes this policy, such as `ssp(staleness=3)`.
        init: number of workers W -> state. Raises ValueError if the policy cannot run with W workers.
        on_push: state, push -> state, decision.
        max_lead: the largest lead of a worker over the slowest worker, in clocks. None: the policy declares
            no bound.
        on_leave: state, worker, time -> state, decision. Called when a worker has left: its task in flight is
            lost, and its pushes stay at the server. A worker that is away at time 0 leaves after `on_begin`,
            before anything is sent to it. None: the policy runs only where no worker leaves.
        on_join: state, worker, time -> state, decision. Called when a worker has rejoined, without cached
            parameters. None: the policy runs only where no worker rejoins.
        on_observation: state, observation -> state. For a policy that watches losses or gradients: called at
            the start, after updates 1, 2, 4, 8, ..., and later after every `observe_every`-th update, when
            all decisions of that update are carried out. None: the policy watches nothing.
        observe_every: the largest number of updates between two observations.
        batch_size: samples of every worker's first task, for a policy that sizes all tasks; no load rule is
            used then. None: the load rule decides.
        sizes: batch sizes in samples of tasks that may follow, so that real engines compile for them before
            the clock starts.
        on_pull: state, worker -> (copy_clock, weight). Called when a worker pulls; the worker receives the
            two numbers with the parameters. For policies with `keep_copy`. None: it receives (0, 1.0).
        keep_copy: copy_clock, clock -> whether a worker starts task `clock` on its cached copy, without
            waiting for the server. The worker calls it when it has computed a task. Its copy is the one it
            pulled plus its own updates since (read-my-writes), each with the weight from `on_pull`. `on_push`
            then sees `keeps_copy`, must not start the worker, and must apply the push with that weight. None:
            every task pulls.
        on_wake: state, token, time -> state, decision. Called when a timer fires that an earlier decision set
            with `wake`, and once at time 0 with token None, after all workers have started. Several timers
            may be pending and none can be cancelled: ignore a token that is out of date. At equal times
            faults come first, then pushes in the order in which their tasks began, then timers in the order
            in which they were set. On a real clock a timer fires as soon as the server is free, after all
            pushes that arrived before it was due. A timer takes no server time, but its decision waits for an
            update in progress. Timers that were due while the server was down fire when it is up again. None:
            the policy sets no timers.
        on_begin: state, seed of the run -> state, starts. Called once at time 0, before all other calls; the
            seed is for random decisions. No pipeline then fills. None: every worker starts.

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
    on_begin: Callable[[Any, int], tuple[Any, Sequence[Start]]] | None = None

    _repr_html_ = notebook.html

    __repr__ = notebook.by_name


class Load(NamedTuple):
    """A rule for the number of samples in each worker's next task.

    Args:
        name: the call that makes this rule.
        init: number of workers W, samples of all workers together -> state. Raises ValueError if the rule
            cannot divide that many samples among W workers.
        size: state, worker -> samples. Called when a task starts.
        observe: state, push -> state. Called before the policy decides about the push. None: sizes never
            change.
        on_leave: state, worker -> state. Called when a worker has left, before the policy decides. None: the
            rule does not depend on it.
        on_join: state, worker -> state. Called when a worker has rejoined, before the policy decides. None:
            the rule does not depend on it.
    """

    name: str
    init: Callable[[int, int], Any]
    size: Callable[[Any, int], int]
    observe: Callable[[Any, Push], Any] | None = None
    on_leave: Callable[[Any, int], Any] | None = None
    on_join: Callable[[Any, int], Any] | None = None

    __repr__ = notebook.by_name


Shape = int | tuple[int, ...]  # of an array, as in NumPy


class Codec(NamedTuple):
    """A lossy encoding of arrays in messages, and the number of bytes of a message.

    The functions are pure; `dmlcore.methods.codecs.transmit` composes them, also inside compiled loops.
    Sender and receiver of a link share one memory, a pytree, because the sender can compute everything that
    the receiver stores.

    Args:
        name: the call that makes this codec, such as `affine(bits=8)`; traces store it.
        num_bytes: shapes of the tensors (n: of a vector) -> bytes of the message.
        init: a tree like the one to be sent -> memory; () for a codec without memory.
        encode: random key, memory, tree -> message, next memory. The key may be None if nothing is random.
        decode: message, memory before the message -> tree.
        contracts: False: its error may be as large as what is sent, whatever the sizes of tensors, so that
            `error_feedback` and `difference` diverge and refuse it.
    """

    name: str
    num_bytes: Callable[[Sequence[Shape]], int]
    init: Callable[[Any], Any]
    encode: Callable[[Any, Any, Any], tuple[Any, Any]]
    decode: Callable[[Any, Any], Any]
    contracts: bool = True

    __repr__ = notebook.by_name


class Transport(NamedTuple):
    """How parameters and gradients travel between server and workers.

    Args:
        name: the call that makes this transport.
        pull_bytes: bytes of the parameters -> bytes of a pull. Not used if `pull` is a codec.
        push_bytes: bytes of the parameters -> bytes of a push. Not used if `push` is a codec.
        pull: `Codec` of the parameters sent to a worker. None: they are sent unchanged.
        push: `Codec` of the gradients sent to the server. None: they are sent unchanged.
        pipelined: whether a worker computes its next task while its last push and the reply to it travel.
        own_steps: whether a pipelined worker adds its own last step, which the copy it pulled does not
            contain yet.
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
        """Whether workers or server use values that differ from those that were sent."""
        return bool(self.pull or self.push or self.own_steps)

    __repr__ = notebook.by_name


class LocalSteps(NamedTuple):
    """Local optimizer steps that a task takes on its samples; `dmlcore.local_steps` makes them.

    Args:
        name: the call that makes them, without the optimizer.
        steps: the number of local steps of a task.
        optimizer: the local optax optimizer.
        keep_state: whether a worker's next task continues with the state of that optimizer.
        prox: mu of the proximal term.
        control_variates: whether control variates correct the steps, as in SCAFFOLD.
        dynamic: whether the proximal term is dynamic, as in FedDyn.
        normalised: whether pushes are normalised by their numbers of steps, as in FedNova.
        fragments: number of fragments that are synchronised in turn, as in Streaming DiLoCo.
        mixing: share of a worker's own parameters in a fragment that it has received.

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
    prox: float = 0.0
    control_variates: bool = False
    dynamic: bool = False
    normalised: bool = False
    fragments: int = 1
    mixing: float = 0.0

    @property
    def streams(self) -> bool:
        """Whether a worker keeps its own parameters from task to task."""
        return self.fragments > 1 or self.mixing > 0

    @property
    def controlled(self) -> bool:
        """Whether the server keeps the mean of what workers remember."""
        return self.control_variates or self.dynamic

    @property
    def must_remember(self) -> bool:
        """Whether a run cannot go on after a worker has lost what it remembers."""
        return self.controlled or self.streams

    @property
    def remembers(self) -> bool:
        """Whether a worker's task depends on its earlier tasks."""
        return self.keep_state or self.must_remember

    __repr__ = notebook.by_name


class Aggregate(NamedTuple):
    """The rule that combines the pushes of one update into the gradient for the optimizer.

    For pushes g_1, ..., g_m with the policy's weights w_1, ..., w_m the gradient is sum_i w_i each(g_i). With
    `reduce` it is (sum_i w_i) reduce(each(g_1), ..., each(g_m)): each push then has one vote, whatever its
    weight, and the weights scale the step. A push of weight 0 has no vote. The rule sees pushes as they
    arrive: decoded, compensated for delay, and with local steps as differences of parameters.

    The functions are pure JAX functions and are traced once. Python numbers in them, such as a threshold, are
    inputs of the compiled loop. `dml.aggregate` has factories.

    Args:
        name: the call that makes this rule, such as `clipped(1.0)`; traces store it.
        each: one push -> the part of it that counts, a tree like the push. None: the whole push.
        reduce: pushes, present -> one gradient, a tree like one push. None: the weighted sum. Leaves of
            `pushes` have a leading axis of M places: the first m hold the pushes, ordered by worker and
            clock, and the others hold 0. `present`, bools of shape (M,), marks the first m. The result must
            not depend on M.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> Aggregate("signs()", each=lambda push: jax.tree.map(jnp.sign, push))
    signs()
    """

    name: str
    each: Callable[[Any], Any] | None = None
    reduce: Callable[[Any, Any], Any] | None = None

    @property
    def plain(self) -> bool:
        """Whether the rule is the weighted sum of the unchanged pushes."""
        return self.each is None and self.reduce is None

    __repr__ = notebook.by_name


class Method(NamedTuple):
    """A way to train, such as a paper's method: a policy with its load, transport, optimizer and so on.

    A field that is None takes the value of the function that the method is passed to, such as `train` or
    `compare`.

    Args:
        policy: the server's rule.
        load: rule for the batch sizes. None: `equal()`, unless the function is given another one.
        transport: what is sent. None: `plain()`, unless the function is given another one.
        optimizer: optax optimizer. None: the one that the function is given.
        compensation: lambda of delay compensation, without a unit (DC-ASGD, Zheng et al. 2017). The server
            replaces a gradient g that was computed at w_read by g + lambda g * g * (w - w_read), where w are
            its present parameters. None: 0, unless the function is given another one.
        local: local steps of a task, made by `local_steps`. None: a task is one gradient, unless the function
            is given local steps.
        aggregate: rule that combines the pushes of an update, see `dml.aggregate`. None: `mean()`, unless the
            function is given another one.

    >>> import dmlcore as dml
    >>> Method(dml.bsp(), load="equal", aggregate="median()")
    Method(bsp(), load='equal', aggregate='median()')
    """

    policy: Policy
    load: Load | str | None = None
    transport: Transport | str | None = None
    optimizer: Any = None
    compensation: float | None = None
    local: LocalSteps | None = None
    aggregate: Aggregate | str | None = None

    _repr_html_ = notebook.html

    def __repr__(self) -> str:
        """The call that makes this method, but for an optimizer, which does not know its own."""
        rest = zip(self._fields[1:], self[1:], strict=True)
        told = [
            f"{name}={'...' if name == 'optimizer' else repr(part)}"
            for name, part in rest
            if part is not None
        ]
        return f"Method({', '.join([repr(self.policy), *told])})"
