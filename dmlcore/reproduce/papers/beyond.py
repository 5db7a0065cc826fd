"""Methods beyond the five papers: what their theory promises, and what would show it.

This is not one paper: the claims go back to several. They are ours, because the statements of a theorem or a
paper must be put into numbers. B1-bound is a check of theory: a theorem on a timeline without randomness,
which gives one number for all seeds. Searches use seed 1000, and other seeds judge.

docs/papers/beyond.md tells what was explored before and what was changed after results had been seen.
"""

from pydantic import Field

from dmlcore.reproduce.paper import Paper, TunedParameters, declare, ours, theory

LAWS = {"i": 1.0, "sqrt(i)": 0.5}  # law of the i-th worker's seconds per gradient -> the power of i
SHARDS = ("IID", "Dirichlet(0.1)")


class BeyondParameters(TunedParameters):
    """Parameters of notebooks/07_beyond.ipynb; `workers` is the largest number in section 1."""

    workers: int = Field(10_000, ge=400, multiple_of=100)


REGIMES = {  # by how the ids of claims begin
    "": "as the sentence says; ours, since no paper names these clusters",
    "B1": "worker i takes i or sqrt(i) seconds for a task, up to 10,000 workers: the theory's own",
}

CLAIMS = {
    "B1-flat": ours(
        "However many slow workers there are, Ringmaster and Rennala take as long (Tyurin and Richtarik "
        "2023; Maranjyan et al. 2025)",
        "time to the target: 100 times as many workers / the least number; each tuned",
        expected=(0.8, 1.25),
        parts=tuple(f"{name}, tau = {law}" for name in ("Ringmaster", "Rennala") for law in LAWS),
    ),
    "B1-asgd": ours(
        "ASGD's time grows as n / sum 1 / tau_i, its bound (Mishchenko et al. 2022)",
        "power of n in the time to the target, from least to most workers / that of the bound",
        expected=(0.75, 1.25),
        parts=tuple(f"tau = {law}" for law in LAWS),
    ),
    "B1-bound": theory(
        "Gradients of one point take t(R) but for a factor of 2, whichever way (Tyurin and Richtarik 2023)",
        "measured / t(R), largest or least over all rounds of the tuned methods",
        expected=(0.5, 2),
        data="none",
        always=True,
        parts=(
            "Rennala, shortest round",
            "Rennala, longest round",
            "Ringmaster, shortest 2 R updates",
            "Ringmaster, longest R updates",
        ),
    ),
    "B2-saves": ours(
        "Where communication is dear, local steps are worth it (Stich 2019)",
        "time to the target at c = 16: one step / the best H; equal shards",
        expected=(2, None),
    ),
    "B2-grows": ours(
        "The dearer communication, the more local steps are best",
        "best H at c = 16 / best H at c = 1/4",
        expected=(2, None),
        parts=SHARDS,
    ),
    "B2-shards": ours(
        "What differs between shards is lost again: local optima drift apart (Karimireddy et al. 2020)",
        "rounds to the target with 16 local steps over those with one: Dirichlet(0.1) / IID",
        expected=(1.5, None),
    ),
    "B3-diloco": ours(
        "DiLoCo performs as well as synchronous training that communicates in every step (Douillard et al. "
        "2023)",
        "held-out loss after as many samples: DiLoCo / AdamW on the mean gradient",
        expected=(None, 1.05),
    ),
    "B3-updates": ours(
        "Asynchronous local SGD takes more to converge than synchronous, though it updates more often (Liu "
        "et al. 2024)",
        "samples to the target: asynchronous Nesterov / DiLoCo",
        expected=(1, None),
    ),
    "B3-delayed": ours(
        "Delayed Nesterov with dynamic local steps matches synchronous local SGD in loss per step (Liu et "
        "al. 2024)",
        "held-out loss after as many samples: delayed Nesterov with dynamic steps / DiLoCo",
        expected=(None, 1.05),
    ),
    "B3-clock": ours(
        "And it significantly surpasses it in wall-clock time (Liu et al. 2024)",
        "time to the target: DiLoCo / delayed Nesterov with dynamic steps",
        expected=(1.2, None),
    ),
    "B4-joint": ours(
        "Where every worker counts the same, training ends at the joint optimum (Maranjyan and Richtarik "
        "2025, of Ringleader)",
        "distance from the joint optimum / that of the point which ASGD's shares predict",
        expected=(None, 0.1),
        parts=("BSP", "Ringleader"),
    ),
    "B4-biased": ours(
        "Else it ends where the workers' shares of the updates predict",
        "distance from the predicted point / that of the predicted point from the joint optimum",
        expected=(None, 0.15),
        parts=("ASGD", "Ringmaster"),
    ),
}

# The finding of each claim, written after the run.
FINDINGS = {
    "B1-flat": (
        "The theory says that further slow workers do not change the time of Ringmaster and Rennala, and "
        "on every seed it is the same with 100 and with 10,000 workers: the gradients of slow workers "
        "arrive too late to be used."
    ),
    "B1-asgd": (
        "If the i-th worker takes sqrt(i) seconds, the claim holds: the time of ASGD grows as its bound "
        "does. If it takes i seconds, the claim fails: the power of n is a fifth of that of the bound, and "
        "from 1,000 workers on further ones change nothing. The reason is that, with a large step, the loss "
        "touches the target for a moment, long before every worker has sent a gradient."
    ),
    "B1-bound": ("All rounds of the tuned methods take t(R) within a factor of 2, as the theorem says."),
    "B2-saves": (
        "The theory says that local steps pay off where communication is expensive. On equal shards they "
        "do: 16 local steps need about as many mini-batches as one step and a fourteenth of its "
        "transfers, and are six times as fast."
    ),
    "B2-grows": (
        "On unequal shards the claim holds clearly: one step is best where communication is cheap, and 8 "
        "or 16 where it is expensive. On equal shards it holds by the least margin, because the interval "
        "begins at the end of the range. There all numbers of local steps take about the same time if "
        "communication is cheap, so that chance decides which of them is best."
    ),
    "B2-shards": (
        "Against one step, 16 local steps take 4.2 times as many rounds on unequal shards as on equal "
        "ones, because the optima of the workers' own losses differ."
    ),
    "B3-diloco": (
        "Douillard et al. report that DiLoCo performs as well as synchronous training. After the 40 "
        "rounds of this notebook its loss is 1.28 times that of AdamW in every step (1.24 to 1.30). A "
        "likely reason is that 40 rounds are few: after 160 rounds on the seed of the search, which "
        "judges nothing, its loss is no higher."
    ),
    "B3-updates": (
        "Liu et al. report that asynchronous training with an outer Nesterov step takes more samples "
        "than DiLoCo, and it does, about a tenth more. A likely reason is that its outer gradients are "
        "stale."
    ),
    "B3-delayed": (
        "Liu et al. report that delayed Nesterov matches the loss per step of synchronous local SGD. "
        "After the 40 rounds of this notebook its loss is 1.46 times DiLoCo's (1.38 to 1.48). After 160 "
        "rounds on the seed of the search, which judges nothing, it is 5% higher."
    ),
    "B3-clock": (
        "Liu et al. report that it is faster in wall-clock time, and it is 1.55 times as fast as DiLoCo. "
        "Dynamic local steps alone, without asynchrony or delayed Nesterov, gain more."
    ),
    "B4-joint": (
        "BSP and Ringleader give every worker the same weight and end at the joint optimum, as the theory "
        "says: their distance from it is about 1% of that of the point which ASGD's shares predict."
    ),
    "B4-biased": (
        "ASGD and Ringmaster end at the point that the workers' shares of the updates predict, off by "
        "less than 2% of its distance from the joint optimum in the median. Fast workers make more "
        "updates, so their data have a larger weight."
    ),
}

PAPER = Paper(
    key="beyond",
    title="Beyond the five papers",
    reference="Ringmaster, Rennala, Ringleader, local SGD, DiLoCo and asynchronous DiLoCo",
    notebook="07_beyond.ipynb",
    parameters=BeyondParameters,
    claims=declare("beyond", CLAIMS, regimes=REGIMES, findings=FINDINGS, unit="x", data="any"),
    figures={
        "orders.png": "Time to the target against the number of workers, both logarithmic, for "
        "Ringmaster, Rennala, delay-adaptive ASGD and ASGD, if the i-th worker takes i seconds (left) "
        "or sqrt(i) seconds (right). Dashed: the number of rounds of Rennala times the bound t(S).",
        "local_steps.png": "Time to the target over that of one local step, against the communication ratio "
        "c, for 1 to 16 local steps: equal shards (left) and Dirichlet(0.1) (right).",
        "diloco.png": "Held-out loss of a small transformer against samples (left) and against time "
        "(right), for AdamW in every step, DiLoCo, DiLoCo with dynamic local steps, and three "
        "asynchronous versions.",
        "shards.png": "Left: the plane of the two parameters with the contours of the joint loss, the "
        "points at which BSP, Ringleader, ASGD and Ringmaster end, and the points that their shares of "
        "the updates predict. Right: measured against predicted distance from the joint optimum, for "
        "all draws of the shards.",
    },
    quick_seconds=150,
)
