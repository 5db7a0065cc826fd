"""What this tree computes against what another revision computes: for changes that should change no number.

.venv/bin/python benchmarks/golden.py HEAD~1             # some ninety small runs: traces and parameters
.venv/bin/python benchmarks/golden.py HEAD~1 --papers    # and every number of the papers' quick ledgers

Both revisions run on this machine, with this interpreter, and are compared bit for bit. Exit code 0: equal;
1: differences, which are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ.get("GOLDEN_TREE", str(Path(__file__).resolve().parents[1])))

import jax
import numpy as np
import optax
import pandas as pd
from scipy import stats

import dmlcore as dml

ROOT = Path(__file__).resolve().parents[1]
SPEEDS = [1000, 700, 1300, 900]


def clusters() -> dict[str, Any]:
    """Clusters by name: with jitter, with links and stragglers, and with all kinds of faults on those."""
    jittered = dml.Cluster.from_speeds(SPEEDS, jitter=stats.expon())
    linked = dml.Cluster.from_speeds(
        SPEEDS, overhead=0.002, latency=0.003, bandwidth=5e6, jitter=stats.gamma(4, scale=0.25)
    ).with_stragglers(4, fraction=0.2, mean_tasks=5)
    broken = dml.faults.random_faults(4, 2.0, seed=5)
    return {"jitter": jittered, "links": linked, "faults": linked.with_faults(*broken, patience=0.1)}


def served(sharing: str) -> Any:
    """A cluster of equal speeds and all kinds of faults with a busy server, whose times fall together."""
    link = {"bandwidth": 1e6, "seconds_per_push": 0.01, "seconds_per_update": 0.005, "sharing": sharing}
    cluster = dml.Cluster.from_speeds([1600, 1600, 800, 800]).with_server(**link)
    return cluster.with_faults(*dml.faults.random_faults(4, 2.0, seed=5), patience=0.1)


def scenarios() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The small runs by name. Only public names are used, so that older revisions run them, too."""
    problem, where = dml.problems.digits_mlp(), clusters()

    def run(policy: Any, cluster: str, optimizer: Any = None, **options: Any) -> Callable[[], Any]:
        options = {"updates": 100, "seed": 3} | options
        return lambda: dml.train(problem, where[cluster], policy, optimizer or optax.sgd(0.1), **options)

    for name, policy in dml.policies.ALL_POLICIES.items():
        for cluster in where:
            yield f"{name}, {cluster}", run(policy(), cluster)
    for name, policy in dml.policies.ALL_POLICIES.items():
        for sharing in ("fifo", "fair"):
            yield (
                f"{name}, {sharing} server",
                lambda policy=policy, sharing=sharing: dml.train(
                    problem, served(sharing), policy(), optax.sgd(0.1), updates=60, seed=3
                ),
            )
    for policy in (dml.bsp(), dml.asp()):
        yield f"{policy}, median", run(policy, "links", aggregate="median()")
        yield (
            f"{policy}, local",
            lambda policy=policy: run(
                policy, "links", updates=30, local=dml.local_steps(3, optax.sgd(0.1))
            )(),
        )
        yield (
            f"{policy}, shards",
            lambda policy=policy: dml.train(
                problem.sharded(dml.shards.dirichlet(4, 0.3)),
                where["links"],
                policy,
                optax.sgd(0.1),
                updates=60,
            ),
        )
    for name in ("bsp", "ssp", "k_async", "adasync"):
        yield f"{name}, devices", run(dml.policies.ALL_POLICIES[name](), "links", engine="devices")
    momentum = optax.sgd(0.02, 0.9)
    transports = {
        "affine": "coded(push=affine(bits=8))",
        "memory": "coded(push=error_feedback(one_bit()), pull=difference(affine(bits=8)))",
        "pipelined": "pipelined()",
        "own steps": "pipelined(coded(push=qsgd(levels=8)), own_steps=True)",
    }
    for name, transport in transports.items():
        for policy in (dml.bsp(), dml.asp(), dml.k_batch_async(3)):
            yield f"{policy}, {name}", run(policy, "links", momentum, transport=transport)
    for load in ("speed_proportional", "equal_finish_time"):
        for policy in (dml.bsp(), dml.ssp(2), dml.asp()):
            yield f"{policy}, {load}", run(policy, "links", load=load)
    yield "asp, compensated", run(dml.asp(), "links", compensation=0.1)
    yield "ssp, adam", run(dml.ssp(3), "links", optax.adam(1e-3))
    yield "asp, by seconds", run(dml.asp(), "faults", updates=None, seconds=2.5)
    yield "bsp, by samples", run(dml.bsp(), "links", updates=None, samples=5000)


def record(folder: Path) -> None:
    """Writes trace and parameters of every small run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, run in scenarios():
        try:
            made = run()
        except (ValueError, RuntimeError, AttributeError, TypeError) as error:  # or it is not there yet
            (folder / f"{name}.error").write_text(str(error))
            continue
        made.trace.tasks.to_parquet(folder / f"{name}.tasks")
        made.trace.updates.to_parquet(folder / f"{name}.updates")
        leaves = {str(n): np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(made.params))}
        losses = made.history["loss"].to_numpy()
        np.savez(folder / f"{name}.npz", **leaves, history=losses)
        print(name, f"loss {losses[-1]:.6g}", flush=True)


def compared(before: Path, after: Path) -> list[str]:
    """Returns the differences between two folders that `record` wrote."""
    found = []
    for name in sorted({path.stem for folder in (before, after) for path in folder.iterdir()}):
        old, new = ({path.suffix for path in folder.glob(f"{glob(name)}.*")} for folder in (before, after))
        if old != new or ".error" in old:
            told = [
                (folder / f"{name}.error").read_text()
                if ".error" in kinds
                else "runs"
                if kinds
                else "is not there"
                for folder, kinds in ((before, old), (after, new))
            ]
            found += [f"{name}: before: {told[0]}; after: {told[1]}"] * (told[0] != told[1])
            continue
        for table in ("tasks", "updates"):
            one, two = (pd.read_parquet(folder / f"{name}.{table}") for folder in (before, after))
            if not one.equals(two):
                found.append(f"{name}: {table}: {frame_difference(one, two)}")
        with np.load(before / f"{name}.npz") as one, np.load(after / f"{name}.npz") as two:
            for leaf in one.files:
                if one[leaf].tobytes() != two[leaf].tobytes():
                    apart = (
                        np.abs(one[leaf] - two[leaf]).max() if one[leaf].shape == two[leaf].shape else "shape"
                    )
                    found.append(
                        f"{name}: {'losses' if leaf == 'history' else f'parameters {leaf}'}: {apart}"
                    )
    return found


def frame_difference(one: pd.DataFrame, two: pd.DataFrame) -> str:
    """Returns in words where two frames differ."""
    if len(one) != len(two):
        return f"{len(one)} rows before, {len(two)} after"
    columns = [name for name in one if name not in two or not one[name].equals(two[name])]
    rows = (one[columns].reset_index(drop=True) != two.reindex(columns=columns)).any(axis=1).idxmax()
    return f"columns {columns} differ, first in row {rows}:\n{one.loc[[rows]]}\n{two.loc[[rows]]}"


def glob(name: str) -> str:
    """Returns a pattern that matches just this name."""
    return name.replace("[", "[[]")


def papers(tree: Path) -> None:
    """Reproduces the papers of a tree at quick scale."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "paper_repro.py", "--force"], cwd=tree, env=environment, check=True)


def ledger_differences(before: Path, after: Path) -> list[str]:
    """Returns the numbers that differ between the ledgers of two trees."""
    found = []
    for path in sorted(before.glob("figures/*/claims.json")):
        name = path.relative_to(before)
        one, two = (json.loads((tree / name).read_text()) for tree in (before, after))
        for claim, other in zip(one["claims"], two["claims"], strict=True):
            found += [f"{name}: {claim['id']}{place}" for place in differences(claim, other)]
    return found


def differences(one: Any, two: Any, place: str = "") -> Iterator[str]:
    """Yields where two JSON values differ, and the values."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in one | two:
            yield from differences(one.get(key), two.get(key), f"{place}.{key}")
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for number, pair in enumerate(zip(one, two, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif one != two:
        yield f"{place}: {one} before, {two} after"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="what to compare with, such as HEAD~1")
    parser.add_argument("--papers", action="store_true", help="also rerun the papers, some minutes each time")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record:
        record(given.record)
        return 0
    with tempfile.TemporaryDirectory(prefix="dmlcore-") as name:
        folder, tree = Path(name), Path(name) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", tree, given.revision], cwd=ROOT, check=True)
        try:
            for side, root in (("before", tree), ("after", ROOT)):
                command = [sys.executable, __file__, given.revision, "--record", folder / side]
                subprocess.run(command, env=os.environ | {"GOLDEN_TREE": str(root)}, check=True)
            found = compared(folder / "before", folder / "after")
            if given.papers:
                papers(tree)
                papers(ROOT)
                found += ledger_differences(tree, ROOT)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    print("\n".join(found) or "equal")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
