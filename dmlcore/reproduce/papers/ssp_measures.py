"""Measurements and studies of notebooks/01_ssp.ipynb, and the server load at which SSP overtakes ASP."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax
import pandas as pd
from scipy import optimize, stats

import dmlcore as dml
from dmlcore import checks
from dmlcore.cluster.regime import with_load
from dmlcore.experiments.study import Study
from dmlcore.reproduce.paper import TUNING_SEEDS

BOUNDS = (0, 1, 3, 8)  # s of timelines, in clocks
DIAMETER, LIPSCHITZ = math.sqrt(2), 1.0  # F and L of theorem 1, for distances to points of the unit ball
CREW = 4  # number of workers in the runs for theorem 1
COORDINATES, UPDATES = 64, 2**14  # of the losses that a stale read cannot foresee
MULTIPLES = np.array([1, 4, 16, 32, 64, 128])  # run lengths as multiples of 16 (s + 1) P updates


def violations(policy: Any, s: int, clusters: Iterable[dml.Cluster], seed: int, seconds: float = 4.0) -> int:
    """Returns the number of reads that violate the bound s, plus clocks of lead beyond s, on all clusters."""
    traces = [dml.simulate(policy, each, seconds=seconds, seed=seed) for each in clusters]
    return sum(
        len(dml.metrics.read_window_violations(trace, s)) + max(0, dml.metrics.clock_gap(trace) - s)
        for trace in traces
    )


def computing_share(trace: dml.Trace) -> float:
    """Returns the share of their time in which workers compute, the mean over workers."""
    return dml.metrics.time_breakdown(trace)["compute_share"].mean()


def computing_rise(runs: Mapping[str, Sequence[dml.Trace]]) -> list[float]:
    """Returns the smallest increase of the computing share from one s to the next, one number per seed.

    Args:
        runs: s, in ascending order -> one trace per seed.
    """
    share = pd.DataFrame(
        {name: [computing_share(trace) for trace in traces] for name, traces in runs.items()}
    )
    return share.diff(axis=1).min(axis=1).tolist()


def makespan(cluster: dml.Cluster, s: int, seed: int = 0, clocks: int = 200) -> float:
    """Returns the seconds until the slowest worker has finished `clocks` clocks under SSP."""
    enough = 32 * cluster.num_workers * (clocks + s + 1)  # with so many samples the slowest has finished
    tasks = dml.simulate(dml.ssp(s), cluster, samples=enough, seed=seed).tasks
    return tasks.loc[tasks["clock"] == clocks - 1, "push_end"].max()


def farthest(makespans: Mapping[int, float]) -> float:
    """Returns the ratio makespan of BSP / makespan of SSP that is farthest from 1, among all s > 0.

    >>> farthest({0: 1.0, 1: 1.0, 3: 0.8, 8: 1.25})
    1.25
    >>> farthest({0: 1.0, 1: 1.0, 3: 0.8, 8: 1.6})
    0.625
    """
    ratios = [makespans[0] / lasted for s, lasted in makespans.items() if s]
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))


def waiting(cluster: dml.Cluster, s: int, seed: int, clocks: int = 200) -> float:
    """Returns the seconds that workers wait, for others, links or the server, per second of computing."""
    trace = dml.simulate(dml.ssp(s), cluster, samples=32 * cluster.num_workers * clocks, seed=seed)
    return 1 / computing_share(trace) - 1


def lag(trace: dml.Trace) -> float:
    """Returns the mean number of clocks by which reads lag behind."""
    counts = dml.metrics.clock_staleness(trace)
    return -np.average(counts.index, weights=counts)


def growth(found: Study, many: str, few: str) -> list[float]:
    """Returns SSP's lead over BSP on the cluster `many` / its lead on `few`, by seed; NaN if undefined."""
    return (found.samples("BSP", "SSP", many) / found.samples("BSP", "SSP", few)).tolist()


def cosine(params: Any, truth: np.ndarray) -> float:
    """Returns the mean cosine of the true topics and the topics of a run, matched one to one."""
    return dml.problems.match_topics(np.asarray(dml.problems.topics_of(params)), truth)[1]


def regrets(
    cluster: dml.Cluster,
    s: int,
    seed: int,
    *,
    step: Callable[[np.ndarray], np.ndarray] = lambda rates: rates,
    multiples: np.ndarray = MULTIPLES,
) -> pd.DataFrame:
    """Returns the regret of stale reads after multiples of 16 (s + 1) P updates, and its bound.

    Each term of the objective is the distance to a point, drawn from the unit ball of four dimensions. The
    column `out_of_turn` has the value of `of_lemma` on the first 2000 updates; NaN for s = 0, which the lemma
    does not cover.

    Args:
        cluster: a cluster of P workers.
        s: of SSP and of the bounds, in clocks.
        seed: of the schedule and the points.
        step: step sizes of theorem 1 -> the step sizes to use.
        multiples: run lengths as multiples of 16 (s + 1) P updates, ascending.
    """
    crew = cluster.num_workers
    every = 16 * (s + 1) * crew * multiples
    steps = int(every[-1])
    trace = dml.simulate(dml.ssp(s), cluster, samples=32 * (steps + crew * s), seed=seed)
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(steps, 4))
    points *= rng.random((steps, 1)) ** (1 / 4) / np.linalg.norm(points, axis=1, keepdims=True)

    def distance(t: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        length = math.sqrt((x - points[t]) @ (x - points[t]))
        return length, (x - points[t]) / length if length else 0 * x

    rates = dml.theory.regret_rates(DIAMETER, LIPSCHITZ, s, crew, steps)
    walk = dml.metrics.walk(trace, distance, np.eye(4)[0], step(rates))
    found = [walk.losses[:number].sum() - _least(points[:number]) for number in every.tolist()]
    bounds = [dml.theory.regret_bound(DIAMETER, LIPSCHITZ, s, crew, number) for number in every.tolist()]
    frame = pd.DataFrame({"T": every, "regret": found, "bound": bounds})
    return frame.assign(s=s, seed=seed, out_of_turn=of_lemma(trace.until(2000), s) if s else math.nan)


def unforeseen(s: int, num_workers: int, seed: int) -> dict[str, float]:
    """Returns the regret of stale reads of losses that they tell nothing of, and the bound of theorem 1.

    Workers run in lock-step, and all losses of s + 1 clocks are the scaled L1 distance to one random corner
    of a cube, so what a read lacks is just what would tell it where to go. The first losses are 0: with steps
    as long as the first ones x would leave the region that the theorem is for.

    Source: Weinberger and Ordentlich 2002, whose lower bound for delayed feedback has such losses.
    """
    size = 1 / math.sqrt(COORDINATES)
    window = (s + 1) * num_workers
    trace = dml.simulate(dml.ssp(s), dml.Cluster.uniform(num_workers), samples=32 * (UPDATES + window))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(-(-UPDATES // window), COORDINATES))
    corners = np.repeat(size * signs, window, axis=0)[:UPDATES]

    def distance(t: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        apart = size * (t >= window) * (x - corners[t])
        return np.abs(apart).sum(), size * np.sign(apart)

    rates = dml.theory.regret_rates(DIAMETER, LIPSCHITZ, s, num_workers, UPDATES)
    path = dml.metrics.walk(trace, distance, np.zeros(COORDINATES), rates)
    late = corners[window:]
    best = size * np.where(late.sum(axis=0) < 0, -1.0, 1.0)
    regret = path.regret(size * np.abs(late - best).sum())
    bound = dml.theory.regret_bound(DIAMETER, LIPSCHITZ, s, num_workers, UPDATES)
    found = {"s": s, "P": num_workers, "seed": seed, "regret": regret, "bound": bound}
    return found | {"F2": path.distance(best)}


def order(runs: pd.DataFrame, column: str) -> list[float]:
    """Returns the power of 1 + s (column s) or of P with which regret grows, for each seed."""
    x = np.log(runs[column] + (column == "s"))
    runs = runs.assign(x=x, y=np.log(runs["regret"]))
    return [np.polyfit(part["x"], part["y"], 1)[0] for _, part in runs.groupby("seed")]


def of_lemma(trace: dml.Trace, s: int) -> float:
    """Returns the largest number of missing and early updates of a read / the bound of lemma 1, for s > 0."""
    most = dml.theory.most_out_of_turn(s, trace.num_workers)
    return dml.metrics.out_of_turn(trace).sum(axis=1).max() / most


def _least(points: np.ndarray) -> float:
    """Returns the smallest sum of distances from any place to the points."""

    def total(x: np.ndarray) -> tuple[float, np.ndarray]:
        lengths = np.linalg.norm(x - points, axis=1)
        return lengths.sum(), ((x - points) / lengths[:, None]).sum(axis=0)

    return optimize.minimize(total, points.mean(axis=0), jac=True).fun


def slope(run: pd.DataFrame) -> float:
    """Returns the slope of log(regret) over log(T), from 16 times the first T on."""
    late = run[run["T"] >= 16 * run["T"].min()]
    return np.polyfit(np.log(late["T"]), np.log(late["regret"]), 1)[0]


def of_bound(run: pd.DataFrame) -> float:
    """Returns the largest regret / bound, from 16 times the T up to which it cannot exceed 1."""
    late = run[run["T"] >= 16 * run["T"].min()]
    return (late["regret"] / late["bound"]).max()


SLOWER, SHARE, RARE, TASKS = 4, 0.1, 0.01, 5  # slow episodes: factor, fractions of tasks, length in tasks
LONGEST = 4  # longest run of a picture, in median times of the best method; a study has the same


def transient(
    num_workers: int, latency: float = 0.01, speed: float = 1000.0, share: float = SHARE
) -> dml.Cluster:
    """Returns a cluster of equal workers with jitter; this share of the tasks is in slow episodes."""
    jitter = stats.gamma(4, scale=0.25)
    cluster = dml.Cluster.uniform(num_workers, samples_per_second=speed, latency=latency, jitter=jitter)
    return cluster.with_stragglers(SLOWER, fraction=share, mean_tasks=TASKS)


class Experiment(NamedTuple):
    """A problem, the loss to reach, and what is searched."""

    problem: Any
    target: float  # loss to reach
    bounds: list[int]  # values of s, the most promising first
    rate: float | None = None  # where the search for learning rates begins, if there are any
    optimizer: Callable[[float], optax.GradientTransformation] | None = None  # None: SGD; additive: no rate
    batch_size: int = 32
    local: Any = None  # local steps of a task

    def cluster(self, num_workers: int, latency: float = 0.01, share: float = SHARE) -> dml.Cluster:
        """Returns a cluster with tasks of 32 ms outside of slow episodes, for any batch size."""
        return transient(num_workers, latency, 1000 * self.batch_size / 32, share)

    def busy(self, num_workers: int, load: float, push: float) -> dml.Cluster:
        """Returns a cluster on free links with this server load under ASP; `push` is the pushes' share."""
        work = {"push": push, "pull": 1 - push}
        return with_load(self.cluster(num_workers, latency=0.0), load, self.problem, self.batch_size, work)

    def methods(self) -> dict[str, Any]:
        """Returns BSP, SSP and ASP, and what is searched of each."""

        def fixed(policy: Any) -> Any:
            return dml.space(lambda: dml.Method(policy, local=self.local))

        def ssp(staleness: int) -> dml.Method:
            return dml.Method(dml.ssp(checks.integer("staleness", staleness, low=1)), local=self.local)

        every = {"BSP": fixed(dml.bsp()), "SSP": dml.space(ssp, staleness=self.bounds)}
        every["ASP"] = fixed(dml.asp(weight=None))
        return {name: each._replace(rate=self.rate, optimizer=self.optimizer) for name, each in every.items()}

    def study(
        self, cluster: Any, judging: Sequence[int], search: int, tuned: Mapping[str, Any] | None = None
    ) -> Study:
        """Returns which method reaches the target first, on one or several clusters.

        The search has so many runs of each method; `tuned` has the settings of earlier ones.
        """
        options: Any = {"budget": search + len(judging), "seeds": judging, "all_seeds": True}
        options |= {"batch_size": self.batch_size, "settings": tuned}
        return dml.study(self.methods(), self.problem, cluster, {"loss": self.target}, **options)

    def at_each_s(self, found: Study, cluster: str = "", seeds: Sequence[int] = TUNING_SEEDS) -> pd.DataFrame:
        """Returns runs of BSP, SSP with each s, and ASP, on tuning seeds, for a picture.

        BSP and ASP have the rates that a study found, each s the better one of those of BSP and SSP.
        """
        answer = found.answers[cluster]
        methods: dict[str, Any] = {f"SSP {s}": dml.ssp(s) for s in sorted(self.bounds)}
        methods = {"BSP": answer.methods["BSP"], **methods, "ASP": answer.methods["ASP"]}
        seconds = LONGEST * float(answer.seconds.median(axis=1).min())
        rates = {*answer.told["learning_rate"][["BSP", "SSP"]]} if self.rate else {1.0}
        runs = dml.sweep(
            methods,
            self.problem,
            answer.goal.cluster,
            self.optimizer or (optax.sgd if self.rate else optax.scale),
            rates,
            seeds=seeds,
            seconds=seconds,
            until={"loss": self.target},
            resolve=True,
            batch_size=self.batch_size,
        )
        return dml.metrics.fair(runs, "loss", self.target)


def best(found: Study, cluster: str = "") -> int:
    """Returns the best s on a cluster."""
    return int(found.answers[cluster].told.loc["SSP", "setting"].removeprefix("staleness = "))


LEAST = 1.05  # smallest ratio of times at which SSP counts as ahead of ASP
CYCLE = 0.032 * (1 + SHARE * (SLOWER - 1))  # mean seconds of a task, including slow episodes
MOST = 10.0  # bound of ratios, and of their inverses, in the interpolation of a crossover


def overtakes(leads: Mapping[float, float], least: float = LEAST) -> float | None:
    """Returns the load at which SSP overtakes ASP: the first change of sign of log(lead / least).

    Between the two loads the logarithm of the lead is interpolated linearly in the logarithm of the load, or
    in the load itself if the first of the two is 0.

    Args:
        leads: load -> time of ASP / time of SSP, for one seed. NaN: neither reaches the target, and the load
            counts as not measured. inf: only SSP reaches it, and is ahead. 0: only ASP does.
        least: the smallest lead at which SSP counts as ahead.

    Returns:
        The load; 0.0 (below the sweep) if SSP is ahead at the first measured load; inf (above the sweep) if
        it is ahead at no load; None if no load was measured.

    >>> overtakes({0.0: 0.8, 1.0: 0.9, 2.0: 1.1, 4.0: 0.7}, least=1.0)
    1.438975333787894
    >>> overtakes({0.0: 1.2, 1.0: 0.9}), overtakes({0.0: 0.8, 1.0: 0.9}), overtakes({0.0: math.nan})
    (0.0, inf, None)
    """
    known = [(load, lead) for load, lead in sorted(leads.items()) if not math.isnan(lead)]
    if not known:
        return None
    first = next((i for i, (_, lead) in enumerate(known) if lead >= least), None)
    if first is None:
        return math.inf
    if first == 0:
        return 0.0
    (a, behind), (b, ahead) = known[first - 1 : first + 1]
    x, y = (math.log(min(max(lead, 1 / MOST), MOST) / least) for lead in (behind, ahead))
    share = x / (x - y)
    return a * (b / a) ** share if a else b * share


def leads_by_load(found: Study) -> pd.DataFrame:
    """Returns time of ASP / time of SSP, by load and seed, from a study on a cluster per load."""
    return pd.DataFrame({float(load): found.samples("ASP", "SSP", load) for load in found.answers}).T


def crossovers(found: Study) -> list[float | None]:
    """Returns the load at which SSP overtakes ASP, for each seed of a study on a cluster per load."""
    return [overtakes(leads) for leads in leads_by_load(found).to_dict().values()]


def predicted(lead: float, num_workers: int) -> float:
    """Predicts the load at which queueing slows ASP by its lead on the free server plus 5%.

    Mean-value analysis gives the slow-down. The prediction assumes that only ASP queues and that SSP keeps
    its clocks per second of the free server, so it is for pushes that cost the server little.

    Args:
        lead: time of SSP / time of ASP on the free server.
        num_workers: number of workers.
    """

    def excess(load: float) -> float:
        service = load * CYCLE / (num_workers - load)
        rate = dml.theory.queueing.mean_value_analysis(num_workers, service, CYCLE)[-1]
        return num_workers / CYCLE / rate - LEAST * lead

    return optimize.brentq(excess, 1e-3, num_workers - 1e-3)


def relative(loads: list[float | None], theory: float) -> list[float | None]:
    """Returns loads / the predicted one; 0 and inf, below and above the sweep, stay the same.

    >>> relative([3.0, 0.0, math.inf, None], 1.5)
    [2.0, 0.0, inf, None]
    """
    return [None if load is None else load / theory for load in loads]
