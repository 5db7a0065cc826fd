"""Adaptive number of workers and computation load (Egger et al. 2023): its claims, and what would show them.

The abstract claims only directions, K1 to K3: faster, with much less computation, at slightly more
communication; all sizes are ours. They are judged where the rival, adaptive k, really adapts, which K0
checks: on data with so much noise that the target is near the lowest floor. K1-fair and others compare the
scheme without an oracle with rivals that `dml.study` tunes on other seeds.

docs/papers/adaptive_k_load.md tells what was explored before and what was changed after results had been
seen, and tests/test_adaptive_k_load.py shows that each claim can fail.
"""

from typing import Any

from pydantic import Field

from dmlcore.reproduce.paper import Comparison, Paper, TunedParameters, abstract, declare, ours, theory
from dmlcore.reproduce.papers.adaptive_k_load_findings import FINDINGS, SUMMARY

RATIOS = (0.2, 1.0, 5.0)
LAWS = ("exponential", "erlang", "shifted")
MORE = 1.001  # smallest speed-up that counts as faster, to exclude ties
JUDGED = ("exponential", "shifted")  # laws of the comparison without an oracle, at ratio 1
ONLINE_RIVALS = ("fixed k", "fixed (k, b)", "Pflug", "AdaSync", "DBW")
RIVALS = (*ONLINE_RIVALS, "adaptive k (oracle)")
SPREADS = (1, 8, 64)  # largest over smallest curvature
IMAGES = ("MNIST", "CIFAR-10")


class AdaptiveKLoadParameters(TunedParameters):
    """Parameters of notebooks/03_adaptive_k_load.ipynb; `workers` is n."""

    workers: int = Field(20, ge=8)


def cell(law: str, ratio: float) -> str:
    """Returns the label of a law of computation times and a ratio of communication to computation.

    >>> cell("erlang", 0.2)
    'erlang, ratio 0.2'
    """
    return f"{law}, ratio {ratio:g}"


def labels(first: Any, second: Any) -> tuple[str, ...]:
    """Returns a label for each pair.

    >>> labels(["uplinks"], ["DBW", "Pflug"])
    ('uplinks: DBW', 'uplinks: Pflug')
    """
    return tuple(f"{one}: {other}" for one in first for other in second)


CELLS = tuple(cell(law, ratio) for law in LAWS for ratio in RATIOS)
OWN = tuple(cell(law, 1.0) for law in JUDGED)  # settings in which the joint schedule is also tuned
BOUND = tuple(cell("exponential", ratio) for ratio in RATIOS)
LINKS = ("uplinks", "downlinks")
AGAINST = labels(["exponential"], RIVALS[-2:]) + labels(["shifted"], RIVALS)

FASTER = "time to the target error"
COMPUTED = "samples assigned until the target error"
RECEIVED = "gradients received until the target error"
ORACLES = "linear regression, both at one learning rate"
ONLINE = "linear regression, ratio 1, each at its best rate and setting"
CUT = (
    "a rival that does not get there counts with what it spent until its time limit; 0x: the scheme does not"
)
OTHERS = "each at its best settings from other seeds"
SEES = "it sees the loss of all data free of charge and is told the law"

REGIMES = {  # by how the ids of claims begin
    "": "three laws of task times and three ratios of communication to computing; the abstract names none",
    "K1-bound": "50 workers, the error bound, exponential times, three ratios; ours",
    "K2-bound": "as K1-bound",
    "K3-bound": "as K1-bound",
    "K1-own": "exponential and shifted times, ratio 1; ours",
    "K1-fair": "exponential and shifted times, ratio 1, each rival; ours",
    "K2-fair": "as K1-fair",
    "K3-fair": "as K1-fair",
    "K1-pric": "shifted times, ratio 1; each rival and digits for K1-priced; ours",
    "K1-law": "shifted times, ratio 1, with either wrong law; ours",
    "K1-spread": "linear regressions with curvatures of 1 to 1, 8 and 64; ours",
    "K1-digits": "digits with exponential times, each rival; ours",
    "K1-images": "MNIST and CIFAR-10 with exponential times, each rival; ours",
    "K2-images": "as K1-images",
}

QUOTES = {  # of the abstract, by how the ids of its claims begin
    "K0": (
        "we construct a novel scheme that adapts both the number of workers and the computation load "
        "throughout the run-time of the algorithm",
        "schedule.png",
    ),
    "K1": ("we improve the convergence speed of distributed SGD", "map.png"),
    "K2": ("while significantly reducing the computation load", "map.png"),
    "K3": ("at the expense of a slight increase in communication load", "map.png"),
}

CLAIMS = {
    "K1-bound": theory(
        "By the error bound, adapting k and b is faster than adapting k at full load",
        f"{FASTER} by the bound: adaptive k (oracle) / joint (oracle); n = 50, s = 40",
        expected=(1.135, 1.185),
        parts=BOUND,
        data="none",
        always=True,
    ),
    "K2-bound": theory(
        "By the error bound, it takes less computation",
        f"{COMPUTED}, by the bound: joint (oracle) / adaptive k (oracle); n = 50, s = 40",
        expected=(0.465, 0.485),
        parts=BOUND,
        data="none",
        always=True,
    ),
    "K3-bound": theory(
        "By the error bound, it takes slightly more communication",
        f"{RECEIVED}, by the bound: joint (oracle) / adaptive k (oracle); n = 50, s = 40",
        expected=(1.005, 1.025),
        parts=BOUND,
        data="none",
        always=True,
    ),
    "K0": ours(
        "The rival adapts: adaptive k waits for at least three workers on average until the target",
        f"gradients of an update of adaptive k (oracle), mean until the target; {ORACLES}",
        expected=(3, None),
        unit="workers",
        parts=CELLS,
    ),
    "K1": abstract(
        "The scheme improves the convergence speed of distributed SGD",
        f"{FASTER}: adaptive k (oracle) / joint (oracle), {ORACLES}",
        parts=CELLS,
    ),
    "K1-own": ours(
        "It is faster with each at its own best learning rate, too",
        f"{FASTER}: adaptive k (oracle) / joint (oracle), linear regression, each at its best learning rate",
        parts=OWN,
    ),
    "K2": abstract(
        "It significantly reduces the computation load",
        f"{COMPUTED}: joint (oracle) / adaptive k (oracle), {ORACLES}; significant, as we put it, is a fifth",
        expected=(None, 0.8),
        parts=CELLS,
    ),
    "K3": abstract(
        "At the expense of a slight increase in communication load",
        f"messages until the target error: joint (oracle) / adaptive k (oracle), {ORACLES}; slight, as we "
        "put it, is a tenth",
        expected=(None, 1.1),
        parts=labels(LINKS, CELLS),
    ),
    "K1-fair": ours(
        f"Without an oracle, adapting k and b is faster ({SEES})",
        f"{FASTER}: rival / joint (online), {ONLINE}; {CUT}",
        parts=AGAINST,
    ),
    "K2-fair": ours(
        f"Without an oracle, it takes less computation ({SEES})",
        f"{COMPUTED}: joint (online) / rival, {ONLINE}; {CUT}",
        expected=(None, 1),
        parts=AGAINST,
    ),
    "K3-fair": ours(
        f"Without an oracle, it receives at most a tenth more gradients ({SEES})",
        f"{RECEIVED}: joint (online) / rival, {ONLINE}; {CUT}",
        expected=(None, 1.1),
        parts=AGAINST,
    ),
    "K1-priced": ours(
        "It is faster even if it sees no loss, and estimates from the received gradients alone",
        f"{FASTER}: rival / joint (received), {ONLINE}; on digits that of K1-digits; {CUT}",
        parts=labels(["shifted"], RIVALS) + labels(["digits"], ONLINE_RIVALS),
    ),
    "K1-price": ours(
        "Not seeing the loss costs a quarter of the time at most",
        f"{FASTER}: joint (received) / joint (online), {ONLINE}",
        expected=(None, 1.25),
    ),
    "K1-law": ours(
        "Being told a wrong law costs a quarter of the time at most",
        f"{FASTER}: joint (online), told a wrong law / told the law; shifted times, ratio 1, one rate",
        expected=(None, 1.25),
        parts=("told exponential", "told erlang"),
    ),
    "K1-spread": ours(
        f"It is faster than the best fixed (k, b) however far curvatures spread ({SEES})",
        f"{FASTER}: best fixed (k, b) / joint (online), by largest over least curvature, {OTHERS}; {CUT}",
        parts=tuple(f"curvatures 1 to {spread}" for spread in SPREADS),
    ),
    "K1-digits": ours(
        f"It is faster on a problem whose constants are not known ({SEES})",
        f"time to the target loss: rival / joint (online), logistic regression, {OTHERS}; {CUT}",
        parts=ONLINE_RIVALS,
        data="digits",
    ),
    "K1-images": ours(
        f"It is faster on networks ({SEES})",
        f"time to the target loss: rival / joint (online), {OTHERS}; {CUT}",
        parts=labels(IMAGES, ONLINE_RIVALS),
        data="MNIST, CIFAR-10",
    ),
    "K2-images": ours(
        f"It takes less computation on networks ({SEES})",
        f"samples assigned until the target loss: joint (online) / rival, {OTHERS}; {CUT}",
        expected=(None, 1),
        parts=labels(IMAGES, ONLINE_RIVALS),
        data="MNIST, CIFAR-10",
    ),
}

PAPER = Paper(
    key="adaptive_k_load",
    title="Fast and straggler-tolerant distributed SGD with reduced computation load",
    reference="Egger, Kas Hanna, Bitar, ISIT 2023",
    notebook="03_adaptive_k_load.ipynb",
    parameters=AdaptiveKLoadParameters,
    summary=SUMMARY,
    claims=declare(
        "adaptive_k_load",
        CLAIMS,
        regimes=REGIMES,
        quotes=QUOTES,
        findings=FINDINGS,
        unit="x",
        expected=(MORE, None),
        data="any",
    ),
    figures={
        "model.png": "Rounds of eight workers as timelines: each worker computes b samples and sends "
        "its gradient, and the server waits for the k fastest and cancels the others. In the lower "
        "picture each worker computes fewer samples, and the server waits for more workers.",
        "mu.png": "Mean length of a round against the number of workers waited for, one line for each batch "
        "size, for three laws of computation times: it rises steeply towards the last worker.",
        "map.png": "Time, computation, uplinks and downlinks of the joint schedule relative to adaptive "
        "k, both oracles, against the ratio of communication to computation, for three laws: medians and "
        "ranges of the seeds. Circles show the cells in which all three statements of the abstract hold by "
        "the medians.",
        "depth.png": "Time, computation and uplinks at a ratio of 1 against the target, from a tenth of the "
        "first error down to 1/1300, and the mean k of adaptive k until then.",
        "small_batches.png": "Excess loss against rounds, for steps on few and on many samples: with "
        "few samples it falls more slowly than the bound says, or not at all, because the noise grows "
        "with the error.",
        "error.png": "Excess loss against time and against samples assigned, for all methods at their "
        "best settings, with shifted times.",
        "schedule.png": "k, and the samples of a task, over time, for all methods at their best settings.",
        "limits.png": "Left: time to the target of the online scheme and of the best fixed (k, b), against "
        "the spread of the curvatures. Right: samples in an update of both.",
        "digits.png": "Logistic regression on digits: time to the target of every method, and the mean "
        "number of samples in its updates.",
    },
    full_figures={"images.png": "MNIST and CIFAR-10: training loss against time, each method at its best."},
    comparisons=(  # with the abstract, the only part of the paper that is available to us
        Comparison(
            "Convergence speed",
            "map.png, K1",
            "same",
            "the scheme is faster in eight of nine settings, and undecided with exponential times and slow "
            "links",
        ),
        Comparison("Computation load", "map.png, K2", "same"),
        Comparison(
            "Communication load",
            "map.png, K3",
            "differs",
            "a rise of at most a tenth is shown in three of 18 settings; in seven, with Erlang or shifted "
            "times, it is larger, up to 69% in the median, and eight are undecided",
        ),
    ),
    data={"full": ("mnist", "cifar10")},
    quick_seconds=80,
)
