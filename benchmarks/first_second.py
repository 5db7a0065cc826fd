"""The first second: a program that imports dmlcore and trains, and one of jitted JAX steps written by hand.

.venv/bin/python benchmarks/first_second.py

Both are processes with a warm compilation cache, on the same data, model, batch size and number of updates.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console, quartiles, race, reported, spread, verdict

ROOT, REPEATS = Path(__file__).resolve().parents[1], 9
OWN = """
import dmlcore as dml
import optax

cluster = dml.Cluster.uniform(8, samples_per_second=1000)
print(dml.train(dml.problems.digits_mlp(), cluster, dml.bsp(), optax.sgd(0.1), updates=50).history)
"""
BY_HAND = """
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

with np.load(DATA) as kept:
    pixels, labels = jnp.asarray(kept["pixels"] / 16, "float32"), jnp.asarray(kept["labels"], "int32")


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(64, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, inputs):
        return self.out(nnx.relu(self.hidden(inputs)))


graph, params = nnx.split(MLP(nnx.Rngs(0)))
optimizer = optax.sgd(0.1)


def loss(params, rows):
    found = nnx.merge(graph, params)(pixels[rows])
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


def run(program: str, cache: str) -> None:
    kept = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | kept | {"XDG_CACHE_HOME": cache, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def main() -> None:
    with reported("first second"), tempfile.TemporaryDirectory() as cache:
        by_hand = BY_HAND.replace("DATA", repr(str(ROOT / "dmlcore/data/digits.npz")))
        seconds = race(
            {"dmlcore": partial(run, OWN, cache), "by hand": partial(run, by_hand, cache)}, REPEATS
        )
        for name, values in seconds.items():
            console.print(f"{name}: {quartiles(values)[1]:.2f} s ({spread(values)})", highlight=False)
        verdict("seconds by hand / seconds of dmlcore", seconds["by hand"] / seconds["dmlcore"], 1.0)


if __name__ == "__main__":
    main()
