"""A mutation check: does the test suite find deliberate faults, put into a copy of the package one at a time?

.venv/bin/python benchmarks/mutations.py --save runs/mutations.jsonl          # hours on two cores; goes on
.venv/bin/python benchmarks/mutations.py --save runs/mutations.jsonl --near   # by the likely tests alone
.venv/bin/python benchmarks/mutations.py --save runs/mutations.jsonl --all    # by the full products
.venv/bin/python benchmarks/mutations.py --only ssp-bound fair-share          # some of them, again
.venv/bin/python benchmarks/mutations.py --list                               # is the table up to date?

Each fault has a fresh copy of the work tree's tracked files. The tests that most likely find it run first,
then all others, up to the first failure. Before the faults, the suite must pass without any. Results are
saved as they come. Linters do not count: tests/test_style.py is left out. Exit code 0: all faults were found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
IGNORED = "tests/test_style.py"
REST = 4  # how many times as long as the likely tests all others may take
FOUND = "failed", "hung"  # outcomes of a fault that was found; the others are "missed" and "error"


class Fault(NamedTuple):
    """A slip: text that occurs once in a file, what a person might have written, and tests to try first."""

    name: str
    file: str  # below dmlcore/
    old: str
    new: str
    near: list[str]  # below tests/


SOUND = Fault("none", "", "", "", [])  # the suite must pass without a fault

# Three lines for each fault: name, file and likely tests; the text that is there; the text that replaces it.
TABLE = """
# policies
ssp-bound methods/policies/gated.py test_ssp.py
- copy_clock >= clock - max_lead
+ copy_clock >= clock - max_lead - 1
essp-bound methods/policies/gated.py test_exactness.py
- gate.advance(push.worker) - max_lead
+ gate.advance(push.worker) - max_lead - 1
dssp-bound methods/policies/gated.py test_ssp.py test_exactness.py
- gate.slowest >= clock - lower
+ gate.slowest >= clock - lower - 1
k-sync-k methods/policies/rounds.py test_adaptive.py test_theory.py
- fixed_k(k, any_worker=False, cancels=True)
+ fixed_k(max(k - 1, 1), any_worker=False, cancels=True)
round-weights methods/policies/gated.py test_loads.py test_exactness.py test_rounding.py
- samples / total) for worker, clock, samples in tasks
+ 1 / len(tasks)) for worker, clock, samples in tasks
share-of-leavers methods/policies/gated.py test_leaving.py test_faults.py
- min(self.share, 1.0 / max(len(tasks), 1))
+ self.share
inverse-damping methods/policies/damping.py test_asynchronous.py
- "inverse": lambda tau: 1 / (1 + tau)
+ "inverse": lambda tau: 1 / (1 + tau) ** 0.5
delay-adaptive methods/policies/each.py test_policies_of_today.py
- n / max(n, tau)
+ n / max(n, tau + 1)
fedbuff-exponent methods/policies/rounds.py test_policies_of_today.py
- damp=polynomial(alpha)
+ damp=polynomial(1 - alpha)
ringmaster-threshold methods/policies/each.py test_policies_of_today.py
- 1.0 if tau < r else None
+ 1.0 if tau <= r else None
schedule-late methods/policies/rounds.py test_adaptive.py
- rows[bisect_right(starts, time) - 1]
+ rows[max(bisect_right(starts, time) - 2, 0)]
sampled-at-work methods/policies/sampling.py test_sampling.py
- worker for worker in among if worker not in busy
+ worker for worker in among
# the server and engines
stale-read engines/server.py test_metrics.py test_trace.py
- version, serial, told = self.num_updates, self._serial, NOTHING_TOLD
+ version, serial, told = max(self.num_updates - 1, 0), self._serial, NOTHING_TOLD
pipeline-sends-early engines/virtual.py test_transport.py
- departs = begun
+ departs = before[3]
copy-is-early engines/crossing.py test_parameter_server.py
- self.clock.at(sent, handle_copy_joins, order)
+ self.clock.at(now, handle_copy_joins, order)
fair-share engines/service.py test_parameter_server.py
- self._got + (time - last) / len(under_way)
+ self._got + (time - last)
crash-forever cluster/faults.py test_faults.py
- if self._faults[worker] > 0:
+ if self._faults[worker] >= 0:
no-outage engines/failures.py test_faults.py
- clock.now = back = now + incident.seconds
+ clock.now = back = now
longest-loss-counts cluster/faults.py test_faults.py
- delay = sum((fault.seconds for fault in wrong if isinstance(fault, LostPush)), 0.0)
+ delay = max((fault.seconds for fault in wrong if isinstance(fault, LostPush)), default=0.0)
zero-of-a-method engines/spec.py test_compensation.py
- compensation if own.compensation is None else own.compensation
+ own.compensation or compensation
# clusters
pull-latency cluster/draws.py test_transport.py test_adaptive.py
- if stream == PULL else None
+ if stream == PUSH else None
bits-for-bytes cluster/draws.py test_theory.py test_transport.py
- latency + self._bytes[stream] / cluster
+ latency + 8 * self._bytes[stream] / cluster
pulls-like-pushes cluster/draws.py test_simulator.py test_transport.py test_jitter.py
- COMPUTE, PULL, PUSH, EPISODES = range(4)
+ COMPUTE, PULL, PUSH, EPISODES = 0, 1, 1, 3
one-jitter-for-all cluster/draws.py test_calibration.py
- latency *= self.multiplier(stream, worker, clock)
+ latency *= self.multiplier(stream, 0, clock)
# load rules
smallest-remainder methods/loads/__init__.py test_loads.py
- step * (sizes - shares)
+ step * (shares - sizes)
transfer-unused methods/loads/__init__.py test_loads.py
- own + sent for own, sent in
+ own for own, sent in
# codecs
residual-sign methods/codecs.py test_codec_memories.py
- jnp.subtract, total, received
+ jnp.subtract, received, total
sign-bit methods/codecs.py test_codecs.py
- 1 + levels.bit_length(), 1, encode
+ levels.bit_length(), 1, encode
one-bit-mean methods/codecs.py test_quantisers.py
- jnp.maximum(side.sum(), 1)
+ side.size
terngrad-chance methods/codecs.py test_quantisers.py
- share(jnp.abs(tensor), scale)
+ share(jnp.abs(tensor), 2 * scale)
top-k-magnitude methods/codecs.py test_quantisers.py
- top_k(jnp.abs(flat), _count
+ top_k(flat, _count
power-first-factor methods/codecs.py test_codec_memories.py
- found = matrix.T @ left
+ found = matrix.T @ (left / 2)
# local steps and aggregates
local-sign training/local_steps.py test_local_steps.py
- jnp.subtract, start, reached
+ jnp.subtract, reached, start
last-local-step training/local_steps.py test_local_steps.py
- count = -(-batch_size // size)
+ count = batch_size // size
local-state training/local_steps.py test_local_steps.py
- state if rule.keep_state else rule.optimizer.init(start), optax
+ rule.optimizer.init(start), optax
fragment-of-answer training/local_steps.py test_local_steps.py
- answers = own.clock - inner.delay
+ answers = own.clock - 1
momentum-of-others training/local_steps.py test_local_steps.py
- chosen(here, new, part) if once
+ new if once
sum-of-pushes training/local_steps.py test_local_steps.py
- centre = jax.tree.map(jnp.add, start, own)
+ centre = jax.tree.map(jnp.subtract, start, own)
trim-low-side methods/aggregate/places.py test_aggregate.py
- (place >= cut) & (place < count - cut)
+ (place >= 2 * cut) & (place < count)
upper-median methods/aggregate/places.py test_aggregate.py
- low, high = (count - 1) // 2, count // 2
+ low, high = count // 2, count // 2
clips-up methods/aggregate/places.py test_aggregate.py
- jnp.where(norm > c, c / norm, 1)
+ jnp.where(norm > 0, c / norm, 1)
control-sign training/local_steps.py test_local_steps.py
- gradient = jax.tree.map(jnp.add, gradient, correction)
+ gradient = jax.tree.map(jnp.subtract, gradient, correction)
dynamic-mean training/local_steps.py test_local_steps.py
- g + (mean + more)
+ g + mean
normalised-mean engines/spec.py test_local_steps.py
- weight * (mean / tau)
+ weight / tau
memory-restored training/replay.py test_local_steps.py
- self._state = jax.tree.map(jnp.array, state)
+ self._state = jax.tree.map(jnp.array, state)._replace(local=self._state.local)
# training and problems
mean-of-padding training/contribution.py test_exactness.py test_rounding.py
- 1 / jnp.asarray(batch_size, real)
+ 1 / jnp.asarray(width, real)
compensation-sign training/step.py test_compensation.py
- p * p * (now - then)
+ p * p * (then - now)
momentum-forgotten training/step.py test_exactness.py test_rounding.py
- return optax.apply_updates(params, updates), after
+ return optax.apply_updates(params, updates), optimizer_state
last-sample training/batches.py test_shards.py test_exactness.py test_rounding.py
- (width,), 0, num_samples, dtype
+ (width,), 0, num_samples - 1, dtype
same-dropout training/batches.py test_keys.py
- (task_key(key, worker, clock), rows)
+ (key, rows)
slot-too-early training/program.py test_lanes.py test_devices.py
- written[read] >= starts[-1]
+ written[read] > starts[-1]
counted-twice training/turns.py test_additive.py
- if since < version:
+ if since <= version:
iid-in-order problems/shards.py test_shards.py
- found[order] = np.arange(total)
+ found[:] = np.arange(total)
regression-scale problems/linear_regression.py test_problems.py
- batch["y"]) ** 2 / 2
+ batch["y"]) ** 2
# traces and theory
bytes-swapped trace/metrics/times.py test_accounts.py
- uplinks * push_bytes + downlinks * pull_bytes
+ uplinks * pull_bytes + downlinks * push_bytes
staleness-from-one trace/metrics/consistency.py test_metrics.py
- applied["update"] - applied["version_read"]
+ applied["update"] - applied["version_read"] + 1
target-late trace/metrics/comparison.py test_metrics.py
- float(xs[i - 1] + (ys
+ float(xs[i] + (ys
unseen-gap trace/metrics/comparison.py test_metrics.py
- last + 1]) > 1:
+ last + 1]) > 2:
episode-length trace/calibration/laws.py test_calibration.py
- 1 / ((1 - together) * (1 - fraction))
+ 1 / (1 - together)
switching-noise theory/schedule.py test_schedules.py
- error - noise * (k + 1)
+ error - noise * k
# claims, experiments and the command line
ends-excluded trace/metrics/decision.py test_metrics.py test_claims.py
- bottom <= least and most <= top
+ bottom < least and most < top
missing-parts reproduce/claims/rules.py test_claims.py
- counts["holds"] == len(outcomes)
+ counts["holds"] == len(outcomes) - counts["not run"]
largest-rise reproduce/papers/ssp_measures.py test_ssp_claims.py
- share.diff(axis=1).min(axis=1)
+ share.diff(axis=1).max(axis=1)
another-seed experiments/journal.py test_study.py
- {**self._about, **run}
+ {**self._about, **run, "seed": 0}
worst-rate trace/metrics/comparison.py test_metrics.py
- drop_duplicates("method")
+ drop_duplicates("method", keep="last")
slowest-trial experiments/study/search.py test_study.py
- -len(runs), float(seconds), float(last)
+ -len(runs), -float(seconds), float(last)
tuned-on-the-judges experiments/study/goal.py test_study.py
- len(self.seeds)) if s not in self.seeds
+ len(self.seeds))
one-look-too-early trace/metrics/decision.py test_study.py
- if len(values) >= LOOKS[0]:
+ if len(values) >= LOOKS[0] - 1:
coarse-crossing experiments/comparison.py test_study.py
- return histories(own_traces, problem, optimizers, looks, driver, work.resolve)
+ return histories(own_traces, problem, optimizers, looks, driver, False)
neither-is-a-pair experiments/study/judging.py test_study.py
- .mask((one == two) & np.isfinite(one), 1.0)
+ .mask(one == two, 1.0)
labels-shifted data/formats.py test_data.py
- labels.copy()
+ np.roll(labels, 1)
exit-code reproduce/command.py test_runner.py test_command.py
- faults.append(f"failed:
+ console.print(f"failed:
force-unused reproduce/command.py test_runner.py test_command.py
- if given.force or job in own or not manifest
+ if job in own or not manifest
half-a-file files.py test_kept.py test_runner.py
- partial.unlink(missing_ok=True)
+ pass
"""


def read(table: str) -> list[Fault]:
    """Returns the faults of a table like `TABLE`."""
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    found = []
    for head, old, new in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name, file, *near = head.split()
        found.append(Fault(name, file, old.removeprefix("- "), new.removeprefix("+ "), near))
    return found


FAULTS = read(TABLE)


def mistakes(fault: Fault) -> Iterator[str]:
    """Yields why a fault no longer fits the code and the tests."""
    count = (ROOT / "dmlcore" / fault.file).read_text(encoding="utf-8").count(fault.old)
    if count != 1:
        yield f"{fault.name}: {fault.old!r} occurs {count} times in dmlcore/{fault.file}"
    missing = [name for name in fault.near if not (ROOT / "tests" / name).exists()]
    yield from (f"{fault.name}: there is no tests/{name}" for name in missing)


@contextlib.contextmanager
def copied(fault: Fault) -> Iterator[Path]:
    """Yields a copy of the work tree's tracked files with a fault in it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="dmlcore-", ignore_cleanup_errors=True) as folder:
        for name in filter(None, listed.decode().split("\0")):
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place)
        if fault.file:
            place = Path(folder, "dmlcore", fault.file)
            place.write_text(place.read_text("utf-8").replace(fault.old, fault.new), encoding="utf-8")
        yield Path(folder)


def run(words: Sequence[str], tree: Path, seconds: float) -> tuple[int | None, str]:
    """Runs Python in a tree; returns its exit code, or None if it hangs, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    options: Any = {"cwd": tree, "env": environment, "start_new_session": True, "stderr": subprocess.STDOUT}
    with (
        tempfile.TemporaryFile() as said,  # not a pipe, which processes that are left would keep open
        subprocess.Popen([sys.executable, *words], stdout=said, **options) as process,
    ):
        try:
            code = process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = None
        said.seek(0)
        return code, said.read().decode(errors="replace")


def asked(words: Sequence[str], tree: Path, seconds: float) -> tuple[str, str]:
    """Returns the outcome of some tests, and the first that failed."""
    code, said = run(["-m", "pytest", "-x", "--tb=no", "-p", "no:cacheprovider", *words], tree, seconds)
    first = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)
    if code is None:
        return "hung", f"no end within {seconds:g} s"
    if code in (0, 5):  # passed, or none of these tests is in the default suite
        return "missed", ""
    if code == 1 or (code == 2 and first):  # 2: a test file could not even import the code
        return "failed", first[1] if first else said[-200:]
    return "error", f"pytest ended with {code}: {said[-200:]}"


def tried(fault: Fault, given: argparse.Namespace) -> dict[str, Any]:
    """Returns whether the tests find a fault, as a row of the file of results."""
    begun, near = time.monotonic(), [f"tests/{name}" for name in fault.near]
    how = ["--all"] * given.all + ["-n", str(given.jobs)] * (given.jobs > 1)
    rest = [f"--ignore={path}" for path in (IGNORED, *near)]
    most = given.timeout if fault.file else REST * given.timeout  # without a fault, they are those of all
    parts = [(near, most)] * bool(near) + [(rest, REST * given.timeout)] * (not given.near)
    outcome, by = "missed", ""
    with copied(fault) as tree:
        for words, seconds in parts:
            outcome, by = asked([*how, *words], tree, seconds)
            if outcome != "missed":
                break
    seconds = round(time.monotonic() - begun, 1)
    return {"name": fault.name, **kind(given), "outcome": outcome, "by": by, "seconds": seconds}


def kind(given: argparse.Namespace) -> dict[str, bool]:
    """Returns the options that tell results apart, as they are in a row."""
    return {"all": given.all, "near": given.near}


def check_imports() -> None:
    """Ends the program unless a copy's tests import the copy's code."""
    with copied(SOUND) as tree:
        code, said = run(["-P", "-c", "import dmlcore; print(dmlcore.__file__)"], tree, 60)
        if code or Path(said.strip()).resolve().parents[1] != tree.resolve():
            sys.exit(f"a copy in {tree} would be tested with {said.strip()}")


def shown(row: dict[str, Any]) -> str:
    file = next((fault.file for fault in FAULTS if fault.name == row["name"]), "")
    return f"{row['name']:22}{file:44}{row['outcome']:8}{row['seconds']:7.0f} s  {row['by']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add, names = parser.add_argument, [fault.name for fault in FAULTS]
    add("--save", type=Path, help="results as JSON lines; faults that have one are not tried again")
    add("--only", nargs="+", metavar="NAME", choices=names, help="these faults, also if they have a result")
    add("--all", action="store_true", help="pytest --all: the full products of the suite")
    add("--near", action="store_true", help="only the likely tests of each fault; missed: try all")
    add("--jobs", type=int, default=1, help="processes of pytest")
    add("--timeout", type=float, default=900, help=f"seconds of the likely tests; others: {REST} times that")
    add("--list", action="store_true", help="show the faults, and whether they fit the code")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if fault.name in (given.only or names)]
    if wrong := [said for fault in chosen for said in mistakes(fault)]:
        sys.exit("\n".join(wrong))
    if given.list:
        print("\n".join(f"{fault.name:22}{fault.file:44}{' '.join(fault.near)}" for fault in chosen))
        print(f"{len(chosen)} faults, each in its place")
        return 0
    lines = given.save.read_text().splitlines() if given.save and given.save.exists() else []
    rows = {row["name"]: row for row in map(json.loads, lines) if kind(given).items() <= row.items()}
    check_imports()
    likely = dict.fromkeys(name for fault in chosen for name in fault.near)
    sound = SOUND._replace(near=[*likely] * given.near)
    for fault in chosen if given.only else [sound, *chosen]:
        if given.only or fault.name not in rows:
            row = rows[fault.name] = tried(fault, given)
            print(shown(row), flush=True)
            if given.save:
                given.save.parent.mkdir(parents=True, exist_ok=True)
                with given.save.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        if fault is sound and rows[fault.name]["outcome"] != "missed":
            sys.exit(f"the suite does not pass without a fault: {rows[fault.name]['by']}")
    print("\n" + "\n".join(shown(rows[fault.name]) for fault in chosen))
    found = sum(rows[fault.name]["outcome"] in FOUND for fault in chosen)
    print(f"{found} of {len(chosen)} faults found")
    return int(found < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
