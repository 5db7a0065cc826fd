"""Optimizers of optax through everything that keeps or repeats a run: equal bits, or one clear refusal.

Each optimizer and chain is trained (train), again on threads and on devices, replayed, resumed from a
checkpoint, and compared twice with `save=`. A cell is `same` if all parameters are equal to the last bit (of
devices: up to rounding, `close`), `refused` with the message below the table, or says what went wrong.

    python benchmarks/optimizers.py [--only NAME ...] [--picture FILE]
"""

from __future__ import annotations

import argparse
import inspect
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=3")  # read when JAX begins

import jax
import jax.numpy as jnp
import numpy as np
import optax

import dmlcore as dml

CLUSTER = dml.Cluster.uniform(3, jitter="exponential")
PROBLEM = dml.problems.logistic_regression()
POLICY = dml.asp(damping="inverse")
OPTIONS: dict[str, Any] = {"updates": 12, "eval_every": 12}
RATED = (
    *("sgd", "adam", "adamw", "adamax", "adamaxw", "amsgrad", "nadam", "nadamw", "radam", "adabelief"),
    *("adadelta", "adafactor", "adagrad", "adan", "fromage", "lamb", "lars", "lion", "novograd", "rmsprop"),
    *("rprop", "sign_sgd", "signum", "sm3", "yogi", "optimistic_adam", "optimistic_adam_v2", "noisy_sgd"),
    *("optimistic_gradient_descent", "polyak_sgd", "lbfgs"),
)
CONTRIB = (
    *("acprop", "ademamix", "adopt", "cocob", "dadapt_adamw", "dog", "dowg", "galore", "madgrad", "momo"),
    *("momo_adam", "muon", "prodigy", "schedule_free_adamw", "schedule_free_sgd", "simplified_ademamix"),
)


def on_host(by: float) -> optax.GradientTransformation:
    """SGD whose gradients are scaled by Python."""

    def update(gradients: Any, state: Any, params: Any = None) -> Any:
        def one(leaf: Any) -> Any:
            kind = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            return jax.pure_callback(lambda array: np.asarray(-by * array), kind, leaf)

        return jax.tree.map(one, gradients), state

    return optax.GradientTransformation(lambda params: (), update)


def parts(params: Any) -> Any:
    return jax.tree.map(lambda leaf: "matrix" if leaf.ndim > 1 else "vector", params)


def is_matrix(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


CHAINS = {
    "momentum": lambda: optax.sgd(0.05, momentum=0.9),
    "nesterov": lambda: optax.sgd(0.05, momentum=0.9, nesterov=True),
    "clip + sgd": lambda: optax.chain(optax.clip(0.1), optax.sgd(0.05)),
    "clip_by_global_norm + adamw": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01)),
    "clip_by_block_rms + sgd": lambda: optax.chain(optax.clip_by_block_rms(0.1), optax.sgd(0.05)),
    "adaptive_grad_clip + sgd": lambda: optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.05)),
    "centralize + sgd": lambda: optax.chain(optax.centralize(), optax.sgd(0.05)),
    "decay + momentum": lambda: optax.chain(optax.add_decayed_weights(1e-3), optax.sgd(0.05, momentum=0.9)),
    "add_noise + sgd": lambda: optax.chain(optax.add_noise(0.1, 0.5, seed=1), optax.sgd(0.05)),
    "zero_nans + adam": lambda: optax.chain(optax.zero_nans(), optax.adam(0.01)),
    "adam + ema": lambda: optax.chain(optax.adam(0.01), optax.ema(0.9)),
    "rss + rate": lambda: optax.chain(optax.scale_by_rss(), optax.scale_by_learning_rate(0.05)),
    "trace + scale": lambda: optax.chain(optax.trace(0.9), optax.scale(-0.05)),
    "trust ratio": lambda: optax.chain(
        optax.scale_by_adam(), optax.scale_by_trust_ratio(), optax.scale(-0.01)
    ),
    "schedule: linear": lambda: optax.sgd(optax.linear_schedule(0.1, 0.01, 10)),
    "schedule: cosine": lambda: optax.adam(optax.cosine_decay_schedule(0.01, 10)),
    "schedule: warm-up": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.01, 3, 10)),
    "schedule: steps": lambda: optax.sgd(optax.piecewise_constant_schedule(0.1, {5: 0.1})),
    "schedule: restarts": lambda: optax.sgd(
        optax.sgdr_schedule(
            [{"init_value": 0.0, "peak_value": 0.1, "decay_steps": 5, "warmup_steps": 2, "end_value": 0.0}]
            * 2
        )
    ),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.01),
    "schedule in samples": lambda: optax.inject_hyperparams(optax.adam)(
        dml.schedule_in("samples", optax.linear_schedule(0.01, 0.0, 500))
    ),
    "schedule in seconds": lambda: optax.inject_hyperparams(optax.adamw)(
        dml.schedule_in("seconds", optax.linear_schedule(0.01, 0.0, 1.0))
    ),
    "injected schedule": lambda: optax.inject_hyperparams(optax.sgd)(optax.linear_schedule(0.1, 0.0, 10)),
    "partition": lambda: optax.partition({"matrix": optax.adam(0.01), "vector": optax.sgd(0.05)}, parts),
    "masked decay": lambda: optax.adamw(0.01, weight_decay=0.1, mask=is_matrix),
    "freeze": lambda: optax.partition({"matrix": optax.adam(0.01), "vector": optax.set_to_zero()}, parts),
    "multi steps": lambda: optax.MultiSteps(optax.adam(0.01), 3).gradient_transformation(),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(0.01), 3),
    "lookahead": lambda: optax.lookahead(optax.sgd(0.05), 5, 0.5),
    "flatten": lambda: optax.flatten(optax.adam(0.01)),
    "sam": lambda: optax.contrib.sam(
        optax.sgd(0.05), optax.chain(optax.contrib.normalize(), optax.sgd(0.05))
    ),
    "reduce_on_plateau": lambda: optax.chain(optax.adam(0.01), optax.contrib.reduce_on_plateau()),
    "dpsgd": lambda: optax.contrib.dpsgd(0.05, 1.0, 0.1, 0),
    "adam in bfloat16": lambda: optax.adam(0.01, mu_dtype=jnp.bfloat16),
    "named_chain": lambda: optax.named_chain(("clip", optax.clip(1.0)), ("sgd", optax.sgd(0.05))),
    "weigh_gradients(adam)": lambda: dml.weigh_gradients(optax.adam(0.01)),
    "callback": lambda: on_host(0.05),
}


def made() -> dict[str, Any]:
    """Returns the makers of all optimizers, by name."""
    found: dict[str, Any] = {}
    for module, names in ((optax, RATED), (optax.contrib, CONTRIB)):
        for name in names:
            make = getattr(module, name)
            rate = {"learning_rate": 0.01} if "learning_rate" in inspect.signature(make).parameters else {}
            if name == "noisy_sgd":
                rate["key"] = 0
            found[name] = lambda make=make, rate=rate: make(**rate)
    return found | CHAINS


def same(one: Any, two: Any, close: bool = False) -> str:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
    if all(np.array_equal(a, b, equal_nan=True) for a, b in pairs):
        return "same"
    return (
        "close" if close and all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in pairs) else "DIFFERENT"
    )


def row(make: Any, told: set[str]) -> dict[str, str]:
    """Returns what becomes of one optimizer in every way to run it; adds refusals to `told`."""

    def tried(question: Any) -> str:
        try:
            return question()
        except ValueError as error:
            told.add(str(error).splitlines()[0])
            return "refused"
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:60].upper()

    def train(**options: Any) -> Any:
        return dml.train(PROBLEM, CLUSTER, POLICY, make(), **OPTIONS | options)

    first: list[Any] = []

    def trained() -> str:
        first.append(train())
        return same(first[0].params, train().params)

    def on_threads() -> str:
        run = train(engine=dml.engines.threads(time_scale=0.02))
        return same(run.params, dml.replay(run.trace, PROBLEM, make(), eval_every=12).params)

    def on_devices() -> str:
        return same(train(engine="devices").params, first[0].params, close=True)

    def replayed() -> str:
        return same(dml.replay(first[0].trace, PROBLEM, make(), eval_every=12).params, first[0].params)

    def resumed() -> str:
        with tempfile.TemporaryDirectory() as folder:
            train(checkpoint=folder, eval_every=4)
            newest = max(Path(folder).glob("*.checkpoint"), key=lambda path: int(path.stem))
            newest.unlink()  # as if the run had ended before
            return same(train(checkpoint=folder, eval_every=4).params, first[0].params)

    def saved() -> str:
        with tempfile.TemporaryDirectory() as folder:
            given = {"asp": POLICY}, PROBLEM, CLUSTER, make()
            frames = [dml.compare(*given, seeds=[0], save=folder, **OPTIONS) for _ in range(2)]
            files = len([*Path(folder).glob("*.parquet")])
            again = dml.compare(*given, seeds=[0], **OPTIONS)
            return same([f["loss"] for f in frames], [again["loss"]] * 2) if files == 1 else f"{files} FILES"

    ways = {"train": trained, "threads": on_threads, "devices": on_devices, "replay": replayed}
    ways |= {"resume": resumed, "save=": saved}
    found: dict[str, str] = {}
    for way, question in ways.items():
        found[way] = tried(question)
        if way == "train" and found[way] == "refused":
            return dict.fromkeys(ways, "refused")
    return found


def picture(path: str) -> None:
    """Draws the loss of AdamW on 16 workers with and without damping of stale pushes."""
    import matplotlib.pyplot as plt

    cluster, problem = dml.Cluster.uniform(16, jitter="exponential"), dml.problems.digits_mlp(8)
    figure, ax = plt.subplots()
    adam = optax.adamw(0.03)
    for label, damping, optimizer in (
        ("no damping", "none", adam),
        ("damping weighs gradients", "inverse", dml.weigh_gradients(adam)),
        ("damping weighs updates", "inverse", adam),
    ):
        runs = [
            dml.train(problem, cluster, dml.asp(damping=damping), optimizer, updates=800, seed=seed).history
            for seed in range(5)
        ]
        ax.plot(runs[0]["update"], np.median([run["loss"] for run in runs], axis=0), label=label)
    ax.set(xlabel="update", ylabel="loss", title="AdamW(0.03), ASP with 16 workers: median of 5 seeds")
    ax.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names of optimizers (default: all)")
    parser.add_argument("--picture", help="draws the effect of damping under AdamW into this file, and ends")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.picture:
        picture(given.picture)
        return
    told: set[str] = set()
    heads = ["train", "threads", "devices", "replay", "resume", "save="]
    print("| optimizer |", " | ".join(heads), "|\n|---|" + "---|" * len(heads))
    for name, make in made().items():
        if given.only is None or name in given.only:
            print(f"| {name} |", " | ".join(row(make, told).values()), "|", flush=True)
    print("\nRefusals:", *sorted(told), sep="\n- ")


if __name__ == "__main__":
    main()
