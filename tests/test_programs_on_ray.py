"""Ray where there is no cluster, in a process of its own: others may have one."""

import importlib.util
import subprocess
import sys

import pytest

if importlib.util.find_spec("ray") is None:  # to import it takes long, and each process collects all files
    pytest.skip("Ray is not installed: pip install 'dmlcore[ray]'", allow_module_level=True)

PROGRAM = """
import sys, optax
import dmlcore as dml

for address in sys.argv[1:]:
    try:
        dml.train(dml.problems.digits_mlp(), dml.Cluster.uniform(2), dml.asp(), optax.sgd(0.1), updates=2,
                  engine=dml.engines.ray(address))
    except ConnectionError as error:
        print(error)
"""


def test_an_unreachable_address_is_given_up(environment):
    addresses = ["127.0.0.1:1", "ray://127.0.0.1:1"]
    command = [sys.executable, "-c", PROGRAM, *addresses]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    for address, line in zip(addresses, done.stdout.splitlines(), strict=True):
        found = f"no answer from '{address}' within 10 s"
        assert f"address: expected a running Ray cluster, got {found}" in line, done.stderr
