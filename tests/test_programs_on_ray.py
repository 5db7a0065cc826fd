"""Ray in processes of their own, with clusters of their own."""

import signal
import subprocess
import sys
import time

import numpy as np
import optax
import pytest
from engine_runs import relative_error

import dmlcore as dml

pytest.importorskip("ray", reason="Ray is not installed: pip install 'dmlcore[ray]'")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_unreachable_address_is_given_up(address):
    code = f"""
import dmlcore as dml, optax
try:
    dml.train(dml.problems.digits_mlp(), dml.Cluster.uniform(2), dml.asp(), optax.sgd(0.1), updates=2,
              engine=dml.engines.ray({address!r}))
except ConnectionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert f"address: nothing answers at '{address}'" in done.stdout, done.stderr
    assert "gave up within 10 s" in done.stdout


PROGRAM = """
import sys, jax, numpy as np, optax
import dmlcore as dml
from dmlcore.cluster.faults import ServerCrash
from scipy import stats

cluster = dml.Cluster.uniform(2, jitter=stats.expon()).with_faults(ServerCrash(1e6, 1.0), checkpoint_every=10)
run = dml.train(dml.problems.digits_mlp(), cluster, dml.bsp(), optax.sgd(0.1), updates=80,
                engine=dml.engines.ray(time_scale=0.5), checkpoint=sys.argv[1])
np.savez(sys.argv[1] + ".npz", *jax.tree.leaves(run.params))
"""


def test_a_killed_program_goes_on_to_the_same_parameters(tmp_path):
    """SIGKILL, and its own local cluster ends with it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 300
        while not any(int(step.name) >= 20 for step in tmp_path.glob("run/*") if step.name.isdigit()):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    assert not (tmp_path / "run.npz").exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert again.returncode == 0, again.stderr
    with np.load(tmp_path / "run.npz") as found:
        resumed = [found[name] for name in found.files]
    cluster = dml.Cluster.uniform(2)
    whole = dml.train(dml.problems.digits_mlp(), cluster, dml.bsp(), optax.sgd(0.1), updates=80)
    assert relative_error(resumed, whole.params) <= 1e-4, "BSP's parameters depend on no latency"
