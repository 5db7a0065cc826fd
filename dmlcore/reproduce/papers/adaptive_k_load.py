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

from dmlcore.reproduce.paper import Paper, Parameters, abstract, declare, ours

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
    "K1-bound": ours(
        "By the error bound, adapting k and b is sooner than adapting k at full load",
        f"{SOONER} by the bound: adaptive k (oracle) / joint (oracle); n = 50, s = 40",
        expected=(1.135, 1.185),
        parts=BOUND,
    ),
    "K2-bound": ours(
        "By the error bound, it takes less computation",
        f"{COMPUTED}, by the bound: joint (oracle) / adaptive k (oracle); n = 50, s = 40",
        expected=(0.465, 0.485),
        parts=BOUND,
    ),
    "K3-bound": ours(
        "By the error bound, it takes slightly more communication",
        f"{RECEIVED}, by the bound: joint (oracle) / adaptive k (oracle); n = 50, s = 40",
        expected=(1.005, 1.025),
        parts=BOUND,
    ),
    "K1-paper": abstract(
        "The scheme improves the convergence speed of distributed SGD: both schedules by oracle, "
        "at one learning rate",
        f"{SOONER}: adaptive k (oracle) / joint (oracle), linear regression",
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

PAPER = Paper(
    key="adaptive_k_load",
    title="Fast and straggler-tolerant distributed SGD with reduced computation load",
    reference="Egger, Kas Hanna, Bitar, ISIT 2023",
    notebook="03_adaptive_k_load.ipynb",
    parameters=AdaptiveKLoadParameters,
    claims=declare("adaptive_k_load", CLAIMS, unit="x", expected=(1, None)),
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
        "oracles, over the ratio of communication to computation, for three laws: trained with intervals, "
        "and by the bound.",
        "small_batches.png": "Excess loss over rounds of steps on few and on many samples: with few it falls "
        "more slowly than the bound says, or not at all, because noise grows with the error.",
    },
    data={"full": ("mnist",)},
    quick_seconds=75,
)
