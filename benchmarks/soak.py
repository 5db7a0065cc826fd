"""Faults at random, for long: runs that are killed at random moments end as if they had not been.

.venv/bin/python benchmarks/soak.py --seconds 3600          # simulated and threads in turn
.venv/bin/python benchmarks/soak.py --engine ray --cases 3
.venv/bin/python benchmarks/soak.py --first 17 --cases 1    # case 17 again

A case is drawn by its number: policy, problem, optimizer, cluster, faults, and when it is killed. It runs
once at one go, and once killed with SIGKILL one to three times; each time it goes on from its checkpoints. On
the virtual clock both have the same bits: parameters, losses, tasks, updates. On real clocks no two runs are
the same: the trace has all updates, no task counts twice, and replays to the parameters. Either way nothing
half-written is left.
Prints each case and the counts; ends with 1 where one failed.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
UPDATES, EVAL_EVERY = 150, 30
MOST_KILLS = 3
# Seconds in which a run at one go ends, else it hangs; on Ray each crash starts a process.
START = {"simulated": 120.0, "threads": 120.0, "ray": 600.0}
SLOWEST = 20.0  # times as long as that one, on top of START: then a run that goes on hangs
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["__main__", "jax", "optax", "scipy.stats"])


def drawn(number, engine):
    """Returns the arguments of a case's run, and the fractions of its time at which it is killed."""
    import optax

    import dmlcore as dml
    from dmlcore.cluster.faults import random_faults
    from dmlcore.methods.policies import ALL_POLICIES

    rng = np.random.default_rng(number)
    name = str(rng.choice([*ALL_POLICIES]))
    workers = int(rng.integers(2, 6))
    speeds = (1000 / rng.choice([1.0, 2.0, 4.0]) ** rng.uniform(size=workers)).tolist()
    jitter = str(rng.choice(["exponential", "gamma(4)", "lognormal(0.5)"]))
    cluster = dml.Cluster.from_speeds(speeds, latency=float(rng.uniform(0, 0.01)), jitter=jitter)
    if rng.uniform() < 0.4:
        cluster = cluster.with_stragglers(float(rng.uniform(2, 6)), fraction=0.2, mean_tasks=5)
    if rng.uniform() < 0.4:
        cluster = cluster.with_server(seconds_per_push=0.003, seconds_per_update=0.001)
    faults = random_faults(workers, 2.0, seed=number) if rng.uniform() < 0.6 else []
    if faults:
        cluster = cluster.with_faults(*faults, checkpoint_every=int(rng.integers(5, 40)))
    problem = [
        dml.problems.digits_mlp,
        dml.problems.linear_regression,
        lambda: dml.problems.matrix_factorization(num_users=50, num_items=40),
    ][int(rng.integers(3))]()
    optimizer = [optax.sgd, lambda rate: optax.sgd(rate, momentum=0.9), optax.adam][int(rng.integers(3))](
        1e-3
    )
    scale = {"simulated": {}, "threads": {"time_scale": 0.1}, "ray": {"time_scale": 0.1}}[engine]
    options = {"updates": UPDATES, "eval_every": EVAL_EVERY, "seed": number}
    options["engine"] = getattr(dml.engines, engine)(**scale)
    about = f"{name}, {problem.name}, {workers} workers, {len(faults)} faults"
    kills = rng.uniform(0.02, 0.7, size=int(rng.integers(1, MOST_KILLS + 1)))
    return about, (problem, cluster, ALL_POLICIES[name](), optimizer), options, kills.tolist()


def live(number, engine, folder, result):
    """One life of a case's run, in a process of its own: it ends with a file, or is killed."""
    import jax

    import dmlcore as dml
    from dmlcore import files
    from dmlcore.training.checkpoints import Checkpoints

    os.environ["TMPDIR"], tempfile.tempdir = str(result.parent / "passing"), None
    Checkpoints.due = lambda self: True  # one wherever there may be one
    _, arguments, options, _ = drawn(number, engine)
    try:
        run = dml.train(*arguments, checkpoint=folder, **options)
        problem, _, _, optimizer = arguments
        again = dml.replay(run.trace, problem, optimizer, eval_every=10**6, fuse=False)
        found = {f"params {i}": leaf for i, leaf in enumerate(map(np.asarray, jax.tree.leaves(run.params)))}
        replayed = map(np.asarray, jax.tree.leaves(again.params))
        found |= {f"replayed {i}": leaf for i, leaf in enumerate(replayed)}
        found["losses"] = run.history["loss"].to_numpy()
        for part in ("tasks", "updates"):
            table = getattr(run.trace, part)
            found |= {f"{part} {column}": table[column].to_numpy() for column in table.columns}
    except ValueError as error:
        found = {"refused": np.array(str(error))}
    except BaseException:
        found = {"failed": np.array(traceback.format_exc())}
    with files.aside(result) as partial, partial.open("wb") as file:
        np.savez(file, **found)


def run(number, engine, folder, result, seconds):
    """Returns whether a life ended by itself within some seconds; else it is killed."""
    life = PROCESSES.Process(target=live, args=(number, engine, folder, result))
    life.start()
    life.join(seconds)
    ended = life.exitcode is not None
    life.kill()
    life.join()
    return ended


def studied(number, engine, folder):
    """Returns what a case came to - same, refused or failed - with its text and how often it was killed."""
    about, _, _, kills = drawn(number, engine)
    results = {name: folder / f"{name}.npz" for name in ("whole", "killed")}
    (folder / "passing").mkdir()
    began = time.monotonic()
    if not run(number, engine, folder / "whole", results["whole"], START[engine]):
        return "failed", f"{about}: hangs at one go", 0
    took, killed = time.monotonic() - began, 0
    whole = loaded(results["whole"])
    for ending in whole.keys() & {"refused", "failed"}:
        return ending, f"{about}: {whole[ending]}", 0
    for fraction in kills:
        if results["killed"].exists():
            break
        killed += not run(number, engine, folder / "killed", results["killed"], fraction * took)
    if not results["killed"].exists() and not run(
        number, engine, folder / "killed", results["killed"], START[engine] + SLOWEST * took
    ):
        return "failed", f"{about}: hangs after {killed} kills", killed
    wrong = "; ".join(differences(whole, loaded(results["killed"]), engine, folder))
    return ("failed", f"{about}, {killed} kills: {wrong}", killed) if wrong else ("same", about, killed)


def loaded(path):
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def differences(whole, killed, engine, folder):
    """Yields what is wrong with the run that was killed, beside the one that was not."""
    if "failed" in killed or "refused" in killed:
        yield str(killed.get("failed", killed.get("refused")))
        return
    if engine == "simulated":
        yield from (
            f"{name} differs"
            for name in whole
            if name not in killed
            or not np.array_equal(whole[name], killed[name], equal_nan=whole[name].dtype.kind == "f")
        )
    else:  # a virtual clock takes one gradient of all tasks of an update, which replay here does not
        for name in killed:
            other = killed.get(name.replace("params", "replayed"))
            if name.startswith("params") and not np.array_equal(killed[name], other, equal_nan=True):
                yield f"{name} differs from those of the replay"
    in_update = killed["tasks update"] >= 0
    clocks = np.stack([killed["tasks worker"][in_update], killed["tasks clock"][in_update]])
    if len(np.unique(clocks, axis=1).T) < len(clocks.T):
        yield "a task counts twice"
    if len(killed["updates time"]) != UPDATES:
        yield f"{len(killed['updates time'])} updates"
    left = [*folder.rglob("*partial*"), *(folder / "passing").iterdir()]
    left = [path for path in left if path.name != "ray"]  # where Ray keeps the logs of its sessions
    left += sorted((folder / "killed").iterdir())[2:]  # two checkpoints stay
    if left:
        yield f"left behind: {[path.name for path in left]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no case begins later")
    parser.add_argument("--cases", type=int, default=None, help="at most")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--engine", choices=["simulated", "threads", "ray"], help="default: the first two in turn"
    )
    given = parser.parse_args()
    if given.cases is None and given.seconds == float("inf"):
        parser.error("give --seconds or --cases")
    began, counts = time.monotonic(), collections.Counter()
    numbers = (
        itertools.count(given.first) if given.cases is None else range(given.first, given.first + given.cases)
    )
    for number in numbers:
        if time.monotonic() - began > given.seconds:
            break
        engine = given.engine or ("simulated", "threads")[number % 2]
        with tempfile.TemporaryDirectory() as folder:
            came_to, text, kills = studied(number, engine, Path(folder))
        print(f"{number} {engine} {came_to}: {text}", flush=True)
        counts.update({f"{engine} {came_to}": 1, f"{engine} kills": kills})
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return int(any("failed" in name for name in counts))


if __name__ == "__main__":
    sys.exit(main())
