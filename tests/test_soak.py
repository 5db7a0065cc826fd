"""The soak script: cases that are drawn, run, killed and compared; and what it would call a failure."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "soak.py"
FIRST = 2  # a simulated case and one of threads that take a second or two each


@pytest.mark.full
def test_killed_at_random_moments(environment):
    command = [sys.executable, SCRIPT, "--first", str(FIRST), "--cases", "2"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert [line.split(":")[0] for line in process.stdout.splitlines()[:-1]] == [
        f"{FIRST} simulated same",
        f"{FIRST + 1} threads same",
    ]


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def came_to(soak, **changed):
    """What a case left, sound but for what is changed."""
    tasks = {"tasks update": np.arange(soak.UPDATES), "tasks worker": np.zeros(soak.UPDATES)}
    tasks["tasks clock"] = np.arange(soak.UPDATES)
    params = {"params 0": np.array([1.0, np.nan]), "replayed 0": np.array([1.0, np.nan])}
    return tasks | params | {"updates time": np.arange(float(soak.UPDATES))} | changed


@pytest.mark.parametrize(
    ("engine", "changed", "wrong"),
    [
        ("simulated", {}, None),
        ("threads", {}, None),
        ("simulated", {"params 0": np.array([1.0, 2.0])}, "params 0 differs"),
        ("threads", {"params 0": np.array([1.0, 2.0])}, "params 0 differs from those of the replay"),
        ("threads", {"tasks clock": np.zeros(150)}, "a task counts twice"),
        ("threads", {"updates time": np.zeros(149)}, "149 updates"),
        ("threads", {"failed": np.array("Traceback")}, "Traceback"),
    ],
)
def test_what_is_wrong_is_told(soak, engine, changed, wrong, tmp_path):
    for name in ("killed", "passing"):
        (tmp_path / name).mkdir()
    found = list(soak.differences(came_to(soak), came_to(soak, **changed), engine, tmp_path))
    assert found == ([wrong] if wrong else [])


@pytest.mark.parametrize("name", ["killed/.3.checkpoint.1.partial", "passing/socket"])
def test_what_is_left_behind_is_told(soak, name, tmp_path):
    for folder in ("killed", "passing"):
        (tmp_path / folder).mkdir()
    (tmp_path / name).touch()
    whole = came_to(soak)
    assert "left behind" in next(soak.differences(whole, whole, "simulated", tmp_path))
