"""The flags of XLA that the kernels of notebooks get."""

import os
import subprocess
import sys

from dmlcore.reproduce import arithmetic
from dmlcore.reproduce.kernel import LocalKernel

PROGRAM = "import jax.numpy as jnp; print((jnp.ones((64, 64)) @ jnp.ones(64)).sum())"


def test_only_a_release_that_has_the_flag_gets_it(monkeypatch):
    monkeypatch.setattr(arithmetic, "version", lambda package: "0.99.0")
    assert arithmetic.settings() == {}


def test_a_kernel_has_flags_before_those_of_the_caller(monkeypatch, tmp_path):
    own = "--xla_cpu_enable_fast_math=false"
    monkeypatch.setenv("XLA_FLAGS", own)
    monkeypatch.setattr(arithmetic, "version", lambda package: "0.10.2")
    for found in (arithmetic.settings(), LocalKernel.keeping(tmp_path)().kernel_spec.env):
        assert found["XLA_FLAGS"] == f"{arithmetic.FLAG} {own}"
    quick = LocalKernel().kernel_spec
    assert quick.env["XLA_FLAGS"] == f"{arithmetic.FLAG} {arithmetic.QUICKLY} {own}"


def test_jax_starts_with_it(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    environment = os.environ | arithmetic.settings(quickly=True) | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.stdout == "4096.0\n", done.stderr
