"""Checkpoints: a run that is killed goes on, to the same parameters; nothing half-written is left."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import check_replay, plane, relative_error, same_bits
from killing import cut_at_a_checkpoint

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training import checkpoints
from dmlcore.training.checkpoints import Checkpoints

# Prints when each checkpoint is there; pauses after it where it is to be killed.
SCRIPT = """
import sys, time
from test_checkpoints import Checkpoints, long_run

folder, policy, engine, updates, pause = sys.argv[1:]
save = Checkpoints.save

def slowly(self, step, *rest):
    save(self, step, *rest)
    print("saved", step, flush=True)
    time.sleep(float(pause))

Checkpoints.save = slowly
Checkpoints.due = lambda self: True
long_run(folder, policy, engine, int(updates))
"""


def long_run(folder, policy, engine, updates):
    """A run with a checkpoint every 10 updates; what it led to is in a file beside its folder."""
    policy, engine = eval(f"dml.{policy}"), eval(f"dml.engines.{engine}")
    cluster = EXPONENTIAL.with_faults(checkpoint_every=10)
    options = {"updates": updates, "seed": 3, "eval_every": 50, "engine": engine, "checkpoint": folder}
    run = dml.train(plane(), cluster, policy, optax.adam(1e-3), **options)
    found = {"history": run.history["loss"].to_numpy(), "updates": len(run.trace.updates)}
    found["twice"] = run.trace.tasks.duplicated(["worker", "clock"]).any()
    np.savez(f"{folder}.npz", *jax.tree.leaves(run.params), **found)


def start(environment, *arguments, pause=0.0):
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments), str(pause)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


# Lives of one run: each is killed by the next checkpoints after so many, or ends by itself where that is -1.
LIVES = """
import os, random, signal, sys, time
from test_checkpoints import Checkpoints, dml, long_run

dml.train, dml.engines, dml.Problem  # imported before processes are forked
folder, policy, updates, *lives = sys.argv[1:]
save, number = Checkpoints.save, 0

def noted(self, *given):
    global number
    save(self, *given)
    os.write(pipe[1], b".")
    number += 1
    if 0 <= life <= number - 3:
        time.sleep(3600)

Checkpoints.save = noted
Checkpoints.due = lambda self: True
for seed, life in enumerate(map(int, lives)):
    pipe = os.pipe()
    child = os.fork()
    if not child:
        long_run(folder, policy, "simulated()", int(updates))
        os._exit(0)
    os.close(pipe[1])
    if life >= 0:
        for _ in range(life):
            os.read(pipe[0], 1)
        time.sleep(0.01 * random.Random(seed).random())
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os.close(pipe[0])
"""


def result(folder):
    with np.load(f"{folder}.npz") as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize(
    ("policy", "engine"),
    [
        # the next test cuts it short in this process
        pytest.param("k_batch_async(3)", "devices()", marks=pytest.mark.full),
        ("bsp()", "threads(time_scale=0.05)"),
    ],
)
def test_a_killed_run_goes_on_to_the_same_parameters(policy, engine, environment, tmp_path, monkeypatch):
    """To the same bits on a virtual clock; on a real one BSP's parameters depend on rounding alone."""
    updates = 120 if "threads" not in engine else 60
    process = start(environment, tmp_path / "killed", policy, engine, updates, pause=0.2)
    for line in process.stdout:
        if int(line.split()[1]) >= updates // 3:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "killed.npz").exists()
    saved, save = [], Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", lambda *given: saved.append(given[1]) or save(*given))
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    long_run(tmp_path / "killed", policy, engine, updates)  # in another process, which this one is
    resumed = result(tmp_path / "killed")
    assert saved[0] > updates // 3, "it did not begin anew"
    long_run(tmp_path / "whole", policy, engine, updates)
    whole = result(tmp_path / "whole")
    assert resumed["updates"] == whole["updates"] == updates
    assert not resumed["twice"]
    parts = [name for name in whole if name.startswith("arr_")]
    if "threads" in engine:
        assert relative_error(*([found[name] for name in parts] for found in (resumed, whole))) < 1e-4
    else:
        assert all((resumed[name] == whole[name]).all() for name in parts)
        assert (resumed["history"] == whole["history"]).all()


def test_a_run_that_is_cut_short_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    saved = cut_at_a_checkpoint(monkeypatch)
    options = {"policy": dml.k_batch_async(3), "engine": "devices", "eval_every": 10}
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", **options)
    resumed = train(tmp_path / "cut", **options)
    assert 0 < saved[0] < saved[1] < saved[2], "it did not begin anew"
    whole = train(tmp_path / "whole", **options)
    assert same_bits(resumed.params, whole.params)
    assert resumed.history.equals(whole.history)


@pytest.mark.full
def test_killed_again_and_again(environment, tmp_path, monkeypatch):
    """At random moments, and DMLCORE_KILLS says how often: the bits are those of a run at one go."""
    kills = int(os.environ.get("DMLCORE_KILLS", "2"))
    lives = np.random.default_rng(7).integers(6, size=kills).tolist()
    updates = 50 * (sum(lives) + 3 * kills + 2)  # more than there are before the last kill
    (tmp_path / "passing").mkdir()
    command = [sys.executable, "-c", LIVES, tmp_path / "killed", "ssp(3)", updates, *lives, -1]
    own = environment | {"TMPDIR": str(tmp_path / "passing")}
    process = subprocess.run([*map(str, command)], env=own, capture_output=True, text=True)
    assert process.stdout.split() == ["-9"] * kills + ["0"], process.stderr
    assert len([*(tmp_path / "killed").iterdir()]) == 2
    assert not [*(tmp_path / "passing").iterdir()]
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    long_run(tmp_path / "whole", "ssp(3)", "simulated()", updates)
    resumed, whole = result(tmp_path / "killed"), result(tmp_path / "whole")
    assert all((resumed[name] == whole[name]).all() for name in whole)


def train(folder, policy=None, **options):
    options = {"updates": 60, "eval_every": 20, "seed": 1} | options
    optimizer = options.pop("optimizer", optax.adam(1e-3))
    problem = options.pop("problem", None) or plane()
    return dml.train(problem, MIXED, policy or dml.ssp(3), optimizer, checkpoint=folder, **options)


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_a_finished_run_is_read_back(policy, tmp_path):
    one, two = (train(tmp_path / "run", ALL_POLICIES[policy]()) for _ in range(2))
    assert same_bits(one.params, two.params)
    assert one.history.equals(two.history)


def test_in_float64(tmp_path):
    with jax.enable_x64(True):
        options = {"problem": plane("float64"), "optimizer": optax.sgd(0.1), "policy": dml.bsp()}
        one, two = (train(tmp_path / "run", **options) for _ in range(2))
        assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(two.params))
        assert same_bits(one.params, two.params)


def test_a_run_that_has_reached_its_target(tmp_path):
    one, two = (train(tmp_path / "run", until={"loss": 7.0}, updates=600) for _ in range(2))
    assert len(one.trace.updates) < 600
    assert one.history.equals(two.history)


OTHERS = {
    "seed": {"seed": 2},
    "policy": {"policy": dml.ssp(2)},
    "optimizer": {"optimizer": optax.adam(2e-3)},
    "eval_every": {"eval_every": 10},
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_call_is_refused(what, tmp_path):
    train(tmp_path / "run")
    with pytest.raises(
        ValueError,
        match=f"checkpoint: expected .* the same arguments, got .*, of another run .(another )?{what}",
    ):
        train(tmp_path / "run", **OTHERS[what])


@pytest.mark.parametrize("engine", ["simulate", "threads"])
@pytest.mark.parametrize("given", ["", 3, b"runs", "a\0b", "file", "file/run"])
def test_a_checkpoint_that_is_no_folder_is_refused(given, engine, tmp_path, monkeypatch):
    """Before anything is computed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dml.experiments.runs, "timeline", None)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"checkpoint: expected a folder"):
        train(given, engine=engine)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def kept(folder, *steps):
    """Writes checkpoints: a state full of the number of its step."""
    with contextlib.closing(Checkpoints(folder, {"a": 1})) as checkpoints:
        for step in steps:
            checkpoints.save(step, {"x": np.full(3, step)}, [[0, {"loss": 0.5}]])


def read(folder):
    with contextlib.closing(Checkpoints(folder, {"a": 1})) as checkpoints:
        return checkpoints.load({"x": np.zeros(3, int)})


@pytest.mark.parametrize("steps", [(), (1, 2, 3)])
def test_a_half_written_checkpoint_does_not_count(steps, tmp_path):
    """What a killed process has left aside is removed, also where it was killed at its first."""
    kept(tmp_path, *steps)
    (tmp_path / ".4.checkpoint.0.partial").write_bytes(b"x")
    found = read(tmp_path)
    assert (found[0] if found else None) == max(steps, default=None)
    assert {path.name for path in tmp_path.iterdir()} == {f"{step}.checkpoint" for step in steps[-2:]}


def test_damage_anywhere_is_found(tmp_path):
    """In the newest: the one before is read, and the warning names both. In both: one message of one line."""
    kept(tmp_path, 1, 2)
    old, new = (tmp_path / f"{step}.checkpoint" for step in (1, 2))
    whole, rng = new.read_bytes(), np.random.default_rng(0)
    for at in rng.integers(len(whole), size=30):
        flipped = bytes([whole[at] ^ 1 << int(rng.integers(8))])
        for damaged in (whole[:at], whole[:at] + flipped + whole[at + 1 :], whole + b"x"):
            new.write_bytes(damaged)
            with pytest.warns(
                UserWarning, match=r"checkpoint: .* damaged checkpoints .step 2.; .* goes on from step 1"
            ):
                step, state, more = read(tmp_path)
            assert (step, state["x"].tolist(), more) == (1, [1, 1, 1], [[0, {"loss": 0.5}]])
    old.write_bytes(b"")
    with pytest.raises(
        ValueError, match=rf"^checkpoint: expected .*, got {tmp_path}, whose .* \(step 2, step 1\)"
    ):
        read(tmp_path)


def test_a_damaged_checkpoint_is_replaced(tmp_path):
    kept(tmp_path, 10, 20)
    (tmp_path / "20.checkpoint").write_bytes(b"")
    with contextlib.closing(Checkpoints(tmp_path, {"a": 1})) as checkpoints:
        with pytest.warns(UserWarning, match="damaged"):
            checkpoints.load({"x": np.zeros(3, int)})
        checkpoints.save(15, {"x": np.zeros(3, int)})
    assert {path.name for path in tmp_path.iterdir()} == {"10.checkpoint", "15.checkpoint"}
    assert read(tmp_path)[0] == 15


def test_checkpoints_of_threads_count_each_push_once(tmp_path, monkeypatch):
    """A second call goes on after the last checkpoint: what was applied stays, nothing twice."""
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    cluster = EXPONENTIAL.with_faults(checkpoint_every=5)
    options = {"updates": 42, "engine": dml.engines.threads(time_scale=0.02), "checkpoint": tmp_path / "run"}
    runs = [dml.train(plane(), cluster, dml.asp(), optax.sgd(0.1), seed=1, **options) for _ in range(2)]
    one, two = (run.trace.tasks[run.trace.tasks["update"].between(0, 39)] for run in runs)
    assert one["worker"].tolist() == two["worker"].tolist(), "up to the checkpoint at 40 it is the same run"
    check_replay(runs[1], plane(), optax.sgd(0.1))


def test_a_finished_run_on_threads_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    cluster = EXPONENTIAL.with_faults(checkpoint_every=5)
    options = {"updates": 20, "engine": dml.engines.threads(time_scale=0.02), "checkpoint": tmp_path / "run"}
    one, two = (dml.train(plane(), cluster, dml.asp(), optax.sgd(0.1), **options) for _ in range(2))
    assert one.trace.updates.equals(two.trace.updates)
    assert same_bits(one.params, two.params)


@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_random_keys_in_an_optimizers_state(engine, tmp_path):
    optimizer = optax.chain(optax.add_noise(0.01, 0.55, jax.random.key(3)), optax.sgd(0.1))
    made = dml.engines.threads(time_scale=0.02) if engine == "threads" else engine
    run = train(tmp_path / "run", dml.bsp(), optimizer=optimizer, engine=made)
    again = train(tmp_path / "run", dml.bsp(), optimizer=optimizer, engine=made)
    assert relative_error(run.params, again.params) < 1e-5


@pytest.mark.parametrize("name", ["notes.txt", "20/_CHECKPOINT_METADATA"])
def test_a_folder_of_something_else_is_left_alone(name, tmp_path):
    """Also one of checkpoints of earlier versions, which were folders."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=r"checkpoint: expected an empty folder"):
        Checkpoints(tmp_path, {})
    assert (tmp_path / name).read_text() == "mine"
    assert len([*tmp_path.rglob("*.*")]) == (1 if "." in name else 0)


def test_a_folder_belongs_to_one_run_at_a_time(tmp_path, monkeypatch):
    """The processes of a killed program may still write for a moment: the next run waits for them."""
    first = Checkpoints(tmp_path / "run", {})
    first.save(1, np.ones(3))
    begun = time.monotonic()
    threading.Timer(0.5, first.close).start()
    second = Checkpoints(tmp_path / "run", {})
    assert time.monotonic() - begun >= 0.5
    assert second.load(np.zeros(3))[0] == 1
    monkeypatch.setattr(checkpoints, "PATIENCE", 0.2)
    with pytest.raises(ValueError, match=r"checkpoint: expected a folder that no other run is using"):
        Checkpoints(tmp_path / "run", {})
    second.close()
    Checkpoints(tmp_path / "run", {}).close()
