"""The first second: a program that imports dmlcore and trains, and two of jitted JAX steps written by hand.

.venv/bin/python benchmarks/first_second.py

One of these has its model from flax, as most have, and one does with JAX alone. All are processes with a warm
compilation cache, on the same data, model, batch size and number of updates. Processor time is told as well,
because other programs on the machine change it less.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from timing import console, quartiles, race, reported, spread, verdict

ROOT, REPEATS = Path(__file__).resolve().parents[1], 9
OWN = """
import dmlcore as dml
import optax

cluster = dml.Cluster.uniform(8, samples_per_second=1000)
print(dml.train(dml.problems.digits_mlp(), cluster, dml.bsp(), optax.sgd(0.1), updates=50).history)
"""
FLAX = """
from flax import nnx


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(64, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, inputs):
        return self.out(nnx.relu(self.hidden(inputs)))


graph, params = nnx.split(MLP(nnx.Rngs(0)))


def model(params, inputs):
    return nnx.merge(graph, params)(inputs)
"""
ALONE = """
def layer(key, inputs, units):
    return {"kernel": jax.random.normal(key, (inputs, units)) / inputs**0.5, "bias": jnp.zeros(units)}


first, second = jax.random.split(jax.random.key(0))
params = {"hidden": layer(first, 64, 32), "out": layer(second, 32, 10)}


def model(params, inputs):
    hidden = jax.nn.relu(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]
"""
BY_HAND = """
import jax
import jax.numpy as jnp
import numpy as np
import optax
MODEL
with np.load(DATA) as kept:
    pixels, labels = jnp.asarray(kept["pixels"] / 16, "float32"), jnp.asarray(kept["labels"], "int32")
optimizer = optax.sgd(0.1)


def loss(params, rows):
    found = model(params, pixels[rows])
    return optax.softmax_cross_entropy_with_integer_labels(found, labels[rows]).mean()


@jax.jit
def step(params, state, key):
    gradient = jax.grad(loss)(params, jax.random.randint(key, (8 * 32,), 0, 1437))
    updates, state = optimizer.update(gradient, state)
    return optax.apply_updates(params, updates), state


state, key, evaluate = optimizer.init(params), jax.random.key(0), jax.jit(loss)
for update in range(50):
    params, state = step(params, state, jax.random.fold_in(key, update))
    if update % 10 == 9:
        print(float(evaluate(params, jnp.arange(1437))))
"""


def run(program: str, cache: str, spent: list[float]) -> None:
    """Runs a program as a process, and notes the seconds of processors that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    kept = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | kept | {"XDG_CACHE_HOME": cache, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    with reported("first second"), tempfile.TemporaryDirectory() as cache:
        by_hand = BY_HAND.replace("DATA", repr(str(ROOT / "dmlcore/data/digits.npz")))
        programs = {"dmlcore": OWN}
        for name, model in (("by hand, with flax", FLAX), ("by hand, JAX alone", ALONE)):
            programs[name] = by_hand.replace("MODEL", model)
        spent: dict[str, list[float]] = {name: [] for name in programs}
        contenders = {name: partial(run, text, cache, spent[name]) for name, text in programs.items()}
        seconds = race(contenders, REPEATS)
        for name, values in seconds.items():
            median = f"{quartiles(values)[1]:.2f} s ({spread(values)})"
            busy = np.median(spent[name][-REPEATS:])
            console.print(f"{name}: {median}, {busy:.2f} s of processors", highlight=False)
        for name in [*programs][1:]:
            verdict(f"seconds {name} / of dmlcore", seconds[name] / seconds["dmlcore"], 1.0)


if __name__ == "__main__":
    main()
