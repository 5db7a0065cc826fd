"""Adaptive number of workers and computation load (Egger et al. 2023): what is claimed, what would show it.

The abstract claims directions only: sooner, with much less computation, at slightly more communication.
Ranges were declared before the notebook first ran, and none was changed; those of the bound are what others
had computed. After first results were seen, this changed, and all was run again:

- The setting was made smaller for the sake of run time: 10 workers instead of 20, fewer fixed (k, b), and
  ends of runs closer to where methods reach the target.
- The control, one (k, b) for the whole run, was the best of two at partial load; it is the best of five,
  three of them at full load.
- The target loss of logistic regression was 0.2, below its optimum, and is 0.28.
- The online scheme: steps of k b by a factor of 2 at most in both directions, and a running mean of what
  was gained, since single looks misled it on logistic regression. Other estimates of the curvature were
  tried and dropped: without bias they were too noisy.
"""

from pydantic import Field

from dmlcore.reproduce.paper import Paper, Parameters, abstract, declare, ours, theory

RATIOS = (0.2, 1.0, 5.0)
LAWS = ("exponential", "erlang", "shifted")
RIVALS = ("fixed k", "adaptive k (oracle)", "Pflug", "AdaSync", "DBW")
ONLINE_RIVALS = tuple(rival for rival in RIVALS if "oracle" not in rival)


class AdaptiveKLoadParameters(Parameters):
    """Parameters of notebooks/03_adaptive_k_load.ipynb; `workers` is n."""

    workers: int = Field(10, ge=4)


def cell(law: str, ratio: float) -> str:
    """Returns the label of a law of computation times and a ratio of communication to computation.

    >>> cell("erlang", 0.2)
    'erlang, ratio 0.2'
    """
    return f"{law}, ratio {ratio:g}"


CELLS = tuple(cell(law, ratio) for law in LAWS for ratio in RATIOS)
BOUND = tuple(cell("exponential", ratio) for ratio in RATIOS)

SOONER = "time to the target error"
COMPUTED = "samples assigned until the target error"
RECEIVED = "gradients received until the target error"

CLAIMS = {
    "K1-bound": theory(
        "By the error bound, adapting k and b is sooner than adapting k at full load",
        f"{SOONER} by the bound: adaptive k (oracle) / joint (oracle); n = 50, s = 40",
        expected=(1.135, 1.185),
        parts=BOUND,
        data="none",
        deterministic=True,
    ),
    "K2-bound": theory(
        "By the error bound, it takes less computation",
        f"{COMPUTED}, by the bound: joint (oracle) / adaptive k (oracle); n = 50, s = 40",
        expected=(0.465, 0.485),
        parts=BOUND,
        data="none",
        deterministic=True,
    ),
    "K3-bound": theory(
        "By the error bound, it takes slightly more communication",
        f"{RECEIVED}, by the bound: joint (oracle) / adaptive k (oracle); n = 50, s = 40",
        expected=(1.005, 1.025),
        parts=BOUND,
        data="none",
        deterministic=True,
    ),
    "K1-paper": abstract(
        "The scheme improves the convergence speed of distributed SGD",
        f"{SOONER}: adaptive k (oracle) / joint (oracle), linear regression; at one learning rate",
        parts=CELLS,
    ),
    "K2-paper": abstract(
        "It significantly reduces the computation load",
        f"{COMPUTED}: joint (oracle) / adaptive k (oracle), linear regression",
        expected=(None, 0.8),
        parts=CELLS,
    ),
    "K3-paper": abstract(
        "At the expense of a slight increase in communication load",
        f"{RECEIVED}: joint (oracle) / adaptive k (oracle), linear regression",
        expected=(1, 1.1),
        parts=CELLS,
    ),
    "K1-fair": ours(
        "Without an oracle, each method at its own best learning rate, adapting k and b is sooner",
        f"{SOONER}: rival / joint (online), linear regression, exponential times, ratio 1",
        parts=RIVALS,
    ),
    "K2-fair": ours(
        "So measured, it takes much less computation",
        f"{COMPUTED}: joint (online) / rival, linear regression, exponential times, ratio 1",
        expected=(None, 0.8),
        parts=RIVALS,
    ),
    "K3-fair": ours(
        "So measured, it takes slightly more communication",
        f"{RECEIVED}: joint (online) / rival, linear regression, exponential times, ratio 1",
        expected=(1, 1.1),
        parts=RIVALS,
    ),
    "K1-control": ours(
        "It is adapting that helps: sooner than one (k, b) for the whole run, the best of a grid",
        f"{SOONER}: best fixed (k, b) of five / joint (online), each at its best learning rate",
    ),
    "K1-digits": ours(
        "It is sooner on a problem whose constants nobody knows, too",
        "time to the target loss: rival / joint (online), each at its best rate; digits, at full scale MNIST",
        parts=ONLINE_RIVALS,
    ),
}

# What was found, by claim; written after the run.
FINDINGS = {
    "K1-bound": (
        "The error bound gives the speed-up that an independent computation of the bound had given before."
    ),
    "K2-bound": (
        "The error bound gives the computation that an independent computation of the bound had given before."
    ),
    "K3-bound": (
        "The error bound gives the communication that an independent computation of the bound had given "
        "before."
    ),
    "K1-paper": (
        "The paper says that adapting the load as well as k converges faster. With schedules from the error "
        "bound it does on every seed, except for exponential times with slow links, where one seed is slower."
    ),
    "K2-paper": (
        "As the paper says, far fewer samples are computed, since small batches suffice while the error is "
        "large."
    ),
    "K3-paper": (
        "The paper says that communication increases slightly. It increases by much more in most settings: "
        "steps on very few samples make less progress than the bound predicts, so that more rounds are "
        "needed."
    ),
    "K1-fair": (
        "Without knowing the problem's constants the scheme is faster than every rival on linear regression, "
        "each at the better of two rates. It is told the law of computation times and sees the full loss free"
        " of charge, and the rival that adapts k rarely raises it before the target."
    ),
    "K2-fair": "It computes fewer samples than every rival, too.",
    "K3-fair": (
        "It communicates less than most rivals, which is outside the declared range of slightly more, though "
        "it is no disadvantage."
    ),
    "K1-control": (
        "It is faster than the best fixed (k, b). That one computes at full load, so these are the runs of "
        "K1-fair against a fixed k."
    ),
    "K1-digits": (
        "On logistic regression a fixed k and AdaSync are faster, and some runs of the scheme miss the "
        "target. What misleads its estimates there was not isolated."
    ),
}

PAPER = Paper(
    key="adaptive_k_load",
    title="Fast and straggler-tolerant distributed SGD with reduced computation load",
    reference="Egger, Kas Hanna, Bitar, ISIT 2023",
    notebook="03_adaptive_k_load.ipynb",
    parameters=AdaptiveKLoadParameters,
    claims=declare("adaptive_k_load", CLAIMS, findings=FINDINGS, unit="x", expected=(1, None), data="any"),
    figures={
        "model.png": "Rounds of eight workers as timelines: each computes b samples and sends its "
        "gradient; the server waits for the k fastest and cancels the rest. Below fewer samples each, "
        "and more workers waited for.",
        "mu.png": "Mean length of a round against the number of workers waited for, one line for each batch "
        "size, for three laws of computation times: it rises steeply towards the last worker.",
        "schedule.png": "k, and samples of a task, over time for the joint schedule and adaptive k, which "
        "are oracles, and for the online scheme, which begins with two rounds of all workers at full load.",
        "error.png": "Excess loss against time, against samples assigned and against gradients received, for "
        "all methods.",
        "grid.png": "Speed-up, computation and uplinks of the joint schedule relative to adaptive k, both "
        "oracles, over the ratio of communication to computation, for three laws: trained, with the spread "
        "over seeds, and by the bound.",
        "small_batches.png": "Excess loss over rounds of steps on few and on many samples: with few it falls "
        "more slowly than the bound says, or not at all, because noise grows with the error.",
    },
    data={"full": ("mnist",)},
    quick_seconds=75,
)
