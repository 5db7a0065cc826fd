"""How good is what `dml.recommend` says? On clusters drawn at random, against ten times the budget.

.venv/bin/python benchmarks/recommend.py FOLDER            # 20 clusters, digits and matrix factorization
.venv/bin/python benchmarks/recommend.py FOLDER threads    # 5 of them on a real clock; ray: one on Ray
.venv/bin/python benchmarks/recommend.py FOLDER candidates # what the library lacks, next to the best of it

On each cluster all methods are tuned with the first rung that 60 s on two idle cores allow, and again with
ten times the runs; the leading ones, and those that are not told apart, go on to the end of their rungs and
seeds. Both choices then run on seeds that neither has seen. Score: the median time of a choice over that of
the best of all methods that were tuned with ten times the runs. FOLDER keeps what is finished: the same call
goes on.

On a real clock BSP is recorded, a method is recommended for the trace, and the first three are run for real.

A candidate belongs in the library if it is at least 10% faster than all methods of `STRONG`, those of the
library that are often best, on at least a tenth of the clusters. Methods of the library have the optimizer
that the user chose. So where DiLoCo leads, which has momentum, BSP with the same momentum runs, too; this was
added after DiLoCo had led on some clusters.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import dmlcore as dml
from dmlcore.cluster import presets
from dmlcore.cluster.regime import with_ratio
from dmlcore.experiments.study.search import runs_of

RULE = 20261127  # seed of the draws; the search was developed on those of 20261125 and 20261126
REAL_RULE = 20261125  # of those that run on a real clock
CLUSTERS = range(20)
TRIALS = 12  # of each method in the first rung
THOROUGH = next(first for first in range(TRIALS, 1000) if runs_of(first) >= 10 * runs_of(TRIALS))
FRESH = range(200, 230)  # seeds that judge both choices
FOREVER = 1e9  # seconds: the number of runs is what is fixed
CLOSE, MOST_OFF = 1.10, 0.15
ON_THREADS, ON_RAY = (0, 2, 8, 11, 18), (2,)  # of REAL_RULE, those of at most 8 workers
RECORDED = 300  # rounds of BSP
REAL_SEEDS = range(3)


def problem_of(number):
    """Digits and matrix factorization in turn, each with a target."""
    if number % 2:
        return dml.problems.matrix_factorization(num_users=50, num_items=40), {"loss": 0.05}
    return dml.problems.digits_mlp(), {"loss": 0.2}


def drawn(number, rule=RULE):
    """The cluster of a number: 4 to 32 workers, speeds, slow episodes, jitter, links and a server's load."""
    rng, (problem, _) = np.random.default_rng([rule, number]), problem_of(number)
    workers = int(np.round(4 * 8 ** rng.uniform()))
    spread = rng.choice([1.0, 2.0, 4.0])  # fastest over slowest
    speeds = (1000 / spread ** rng.uniform(size=workers)).tolist()
    jitter = rng.choice(["exponential", "gamma(16)", "gamma(4)", "lognormal(0.5)"])
    cluster = dml.Cluster.from_speeds(speeds, latency=0.001, jitter=str(jitter))
    if rng.uniform() < 0.5:
        slowdown, fraction = rng.uniform(2, 8), rng.uniform(0.05, 0.3)
        cluster = cluster.with_stragglers(slowdown, fraction=fraction, mean_tasks=int(rng.integers(2, 20)))
    ratio = 0.02 * 200 ** rng.uniform()  # c, 0.02 to 4
    if rng.uniform() < 0.5:  # by bandwidth, where fewer bytes help; else by latency
        cluster = dataclasses.replace(cluster, latency_seconds=(0.0,) * workers)
        cluster = dataclasses.replace(cluster, bandwidth_bytes_per_second=(1e6,) * workers)
    cluster = with_ratio(cluster, ratio, problem, 32)
    if rng.uniform() < 0.3:
        cluster = presets.busy_server(cluster, 0.2 * 20 ** rng.uniform(), problem)
    return cluster


def studied(number, folder):
    """Scores of one cluster: the recommendation's, and of every method as it was tuned with the budget."""
    path = folder / f"{RULE}-{number}.json"
    if path.exists():
        return json.loads(path.read_text())
    (problem, target), cluster = problem_of(number), drawn(number)
    options = {"budget": FOREVER, "progress": False, "save": folder / "runs"}
    began = time.monotonic()
    quick = dml.recommend(problem, cluster, target, trials=TRIALS, **options)
    took = time.monotonic() - began
    thorough = dml.recommend(problem, cluster, target, trials=THOROUGH, **options)
    judged = {name: judge(found) for name, found in (("quick", quick), ("thorough", thorough))}
    least = judged["thorough"].min()
    found = {
        "cluster": repr(cluster),
        "regime": str(cluster.regime(problem)),
        "problem": problem.name,
        "wall_seconds": took,
        "recommended": str(quick.table.index[0]),
        "best": str(judged["thorough"].idxmin()),
        "score": float(judged["quick"][quick.table.index[0]] / least),
        "scores": (judged["quick"] / least).replace(np.inf, 1e9).to_dict(),
    }
    write(path, found)
    return found


def judge(found):
    """Median time to the target of every method as it was tuned, on fresh seeds."""
    return found.with_cluster(found.cluster, seeds=FRESH).table["seconds"]


def simulated(folder):
    rows = []
    for number in CLUSTERS:
        rows.append(studied(number, folder))
        row = rows[-1]
        said = f"recommended {row['recommended']} in {row['wall_seconds']:.0f} s, best {row['best']}, "
        said += f"score {row['score']:.2f}"
        print(f"{number:2d} {row['problem']}, {row['regime']}: {said}", flush=True)
    names = [name for name in rows[0]["scores"] if all(name in row["scores"] for row in rows)]
    table = np.array([[row["scores"][name] for name in names] for row in rows])
    fixed = names[int(np.argmin(np.exp(np.log(np.minimum(table, 100)).mean(axis=0))))]
    choices = {"recommended": [row["score"] for row in rows]}
    choices |= {name: [row["scores"][name] for row in rows] for name in ("BSP", "ASP", fixed)}
    print("the best fixed choice is the one with the best mean score on these same clusters")
    for name, scores in choices.items():
        close, told = sum(score <= CLOSE for score in scores), " (best fixed choice)" if name == fixed else ""
        middle = f"median {np.median(scores):.2f}, worst {max(scores):.2f}"
        print(f"{name}{told}: within 10% on {close} of {len(scores)}; {middle}")


def on_a_real_clock(folder, engine, numbers):
    """Predictions of the first three methods beside what they take for real."""
    close, right = [], []
    for number in numbers:
        path = folder / f"{engine}-{number}.json"
        if not path.exists():
            (problem, target), cluster = problem_of(number), drawn(number, REAL_RULE)
            trace = dml.train(
                problem, cluster, dml.bsp(), optax.sgd(1e-3), engine=engine, updates=RECORDED
            ).trace
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                options = {"budget": FOREVER, "trials": TRIALS, "progress": False, "save": folder / "runs"}
                found = dml.recommend(problem, trace, target, **options)
            rows = [real(problem, cluster, target, found, name, engine) for name in found.table.index[:3]]
            write(path, {"notes": found.notes, "why": found.why, "rows": rows})
        rows = json.loads(path.read_text())["rows"]
        for row in rows:
            off = row["real"] / row["predicted"] - 1
            told = f"predicted {row['predicted']:.2f} s, real {row['real']:.2f} s ({off:+.0%})"
            print(f"{engine} {number}: {row['method']} ({row['outcome']}): {told}", flush=True)
        close.append(abs(rows[0]["real"] / rows[0]["predicted"] - 1) <= MOST_OFF)
        apart = [row for row in rows[1:] if row["outcome"] == "slower"]  # the prediction separates these
        right += [row["real"] > rows[0]["real"] for row in apart]
    told = f"within {MOST_OFF:.0%} of its prediction on {sum(close)} of {len(close)}"
    print(f"the recommended method is {told}")
    told = f"{sum(right)} of {len(right)} that the prediction calls slower are slower for real"
    print(f"of the first three, {told}")


def real(problem, cluster, target, found, name, engine):
    """Predicted and real median time to the target of one method."""
    ((metric, value),) = target.items()
    row = found.table.loc[name]
    times = []
    for seed in REAL_SEEDS:
        options = {"engine": engine, "seed": seed, "seconds": 3 * row["seconds"], "until": target}
        method = found.answer.methods[name]
        history = dml.train(problem, cluster, method, None, eval_every=1, **options).history
        times.append(dml.metrics.crossing(history["time"], history[metric], value))
    told = {"method": name, "outcome": row["outcome"], "predicted": float(row["seconds"])}
    return told | {"real": float(np.median(times)), "times": times}


STRONG = ["BSP", "balanced BSP", "quantized BSP", "H-PS", "local SGD", "K-batch-sync", "SSP", "ASP"]
STRONG += ["quantized ASP", "DBS-SGD", "asynchronous local SGD"]
FEW = 6  # trials of each method in the first rung


def sparse(policy):
    """Pushes of the largest entries, what is left kept for later; parameters as differences of 8 bits."""

    def make(fraction):
        push = f"error_feedback(top_k({fraction}))"
        return dml.Method(policy, transport=f"coded({push}, difference(affine(8, stochastic=False)))")

    return dml.space(make, fraction=[0.1, 0.01, 0.03])


def nesterov(learning_rate):
    return optax.sgd(learning_rate, momentum=0.9, nesterov=True)


def diloco(steps, local_rate, learning_rate):
    return dml.Method(dml.bsp(), local=local_sgd(steps, local_rate), optimizer=nesterov(learning_rate))


def with_momentum(learning_rate):
    return dml.Method(dml.bsp(), optimizer=nesterov(learning_rate))


def streaming(steps, local_rate, learning_rate):
    local = local_sgd(steps, local_rate, fragments=4, mixing=0.5)
    outer = optax.sgd(learning_rate)
    return dml.Method(dml.bsp(), transport="pipelined()", local=local, optimizer=outer)


@cache  # a new local optimizer would be compiled anew
def local_sgd(steps, rate, **options):
    return dml.local_steps(steps, optax.sgd(rate), **options)


RATES = {"local_rate": [0.2, 0.8, 0.05, 4.0], "learning_rate": [0.5, 1.0, 0.2]}
CANDIDATES = {
    "sparse BSP": sparse(dml.bsp()),
    "sparse ASP": sparse(dml.asp()),
    "DiLoCo": dml.space(diloco, steps=[8, 2, 32], **RATES),
    "Streaming DiLoCo": dml.space(streaming, steps=[4, 1, 16], **RATES),
}
MOMENTUM = dml.space(with_momentum, learning_rate=[0.2, 0.5, 0.1, 1.0, 0.05])


def seconds_of(methods, number, path):
    """Median time to the target of some methods on a cluster, as `recommend` tunes them; kept in a file."""
    if not path.exists():
        (problem, target), cluster = problem_of(number), drawn(number)
        options = {"budget": FOREVER, "trials": FEW, "progress": False, "save": path.parent / "runs"}
        found = dml.recommend(problem, cluster, target, methods=methods, **options)
        write(path, {"seconds": found.table["seconds"].replace(np.inf, 1e9).to_dict()})
    return json.loads(path.read_text())["seconds"]


def candidates(folder):
    """How much faster each candidate is than the best of the library, on every cluster."""
    leads = []
    for number in CLUSTERS:
        methods = {name: {} for name in STRONG} | CANDIDATES
        seconds = seconds_of(methods, number, folder / f"candidates-{number}.json")
        old = min(STRONG, key=lambda name: seconds.get(name, np.inf))
        leads.append({name: seconds[old] / seconds[name] for name in CANDIDATES if name in seconds})
        told = ", ".join(f"{name} {lead:.2f}x" for name, lead in leads[-1].items())
        regime = drawn(number).regime(problem_of(number)[0])
        print(f"{number:2d} {regime}: {told} as fast as {old}", flush=True)
        if leads[-1].get("DiLoCo", 0) >= CLOSE:
            methods = {"BSP": {}, "momentum": MOMENTUM, "DiLoCo": CANDIDATES["DiLoCo"]}
            seconds = seconds_of(methods, number, folder / f"momentum-{number}.json")
            control = seconds["momentum"] / seconds["DiLoCo"]
            leads[-1]["DiLoCo"] = min(leads[-1]["DiLoCo"], control)
            print(f"   DiLoCo {control:.2f}x as fast as BSP with its momentum", flush=True)
    for name in CANDIDATES:
        often = sum(lead.get(name, 0) >= CLOSE for lead in leads)
        belongs = "belongs" if often >= len(leads) / 10 else "does not belong"
        print(f"{name}: 10% faster than the library on {often} of {len(leads)}, so it {belongs} in it")


def write(path, found):
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.replace(path)


if __name__ == "__main__":
    folder, kind = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "simulated"
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "simulated":
        simulated(folder)
    elif kind == "candidates":
        candidates(folder)
    else:
        on_a_real_clock(folder, kind, {"threads": ON_THREADS, "ray": ON_RAY}[kind])
