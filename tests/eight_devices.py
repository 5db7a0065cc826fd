"""Run by test_devices.py in a process of its own, where the CPU is eight devices; prints one JSON object.

Its arguments are the policies to try on four workers.
"""

import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from clusters import MIXED
from engine_runs import plane
from scipy import stats
from wheels import check_topics

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training import mesh
from dmlcore.training.stepper import Stepper

TWELVE = dml.Cluster.from_speeds(
    [1000, 700, 1300, 1000] * 3,
    overhead=0.002,
    latency=0.002,
    bandwidth=5e7,
    jitter=stats.gamma(4, scale=0.25),
).with_stragglers(4, fraction=0.2, mean_tasks=5)
CLUSTERS = {"4": MIXED, "12": TWELVE}
OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.02, momentum=0.9),
    "adam": optax.adam(1e-3),
}
FEW = ("bsp", "ssp", "k_async")
COMPENSATED = {
    "asp, compensated": lambda: dml.Method(dml.asp(), compensation=50.0),
    "k_async, compensated": lambda: dml.Method(dml.k_async(2), compensation=50.0),
}
POLICIES = ALL_POLICIES | COMPENSATED
FLOAT32 = [(policy, "adam", "12") for policy in FEW]
FLOAT64 = [(policy, "momentum", "12") for policy in (*FEW, *COMPENSATED)]
MARKS = (0, 25, 50, 60)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def relative_error(one, two):
    one, two = np.asarray(one), np.asarray(two)
    return float(np.linalg.norm(one - two) / np.linalg.norm(two))


def compare(problem, cluster, policy, optimizer, devices=None):
    """Errors of a sharded replay against `train`: of the final parameters, and the largest of the losses."""
    policy, optimizer = POLICIES[policy](), OPTIMIZERS[optimizer]
    run = dml.train(problem, cluster, policy, optimizer, updates=60, seed=4, eval_every=25)
    replay = mesh.ShardedReplay([run.trace], problem, [optimizer], devices)
    losses = []
    for mark in MARKS:
        replay.advance(mark)
        losses.append(float(replay.evaluate()[0]["loss"]))
    assert run.history["update"].tolist() == list(MARKS)
    return {
        "params": relative_error(flat(replay.params()), flat(run.params)),
        "losses": float(np.max(np.abs(losses / run.history["loss"].to_numpy() - 1))),
        "dtype": str(flat(replay.params()).dtype),
    }


def table(problem, cases):
    return {
        " ".join(case): compare(problem, CLUSTERS[cluster], policy, optimizer)
        for case in cases
        for policy, optimizer, cluster in [case]
    }


def additive():
    """Whether additive updates on eight devices leave the bits of a replay on one, and counts whole."""
    problem = dml.problems.lda(num_documents=48, document_length=12)
    found = {}
    for policy in ("bsp", "k_async"):
        options = {"updates": 40, "batch_size": 3, "seed": 4}
        runs = [
            dml.train(problem, TWELVE, POLICIES[policy](), optax.identity(), engine=engine, **options)
            for engine in ("simulate", "devices")
        ]
        check_topics(problem, runs[1].params)
        found[policy] = bool((flat(runs[0].params) == flat(runs[1].params)).all())
    return found


def coded(problem):
    """Errors of runs with codecs, with memories too, against a replay on one device."""
    transports = (
        "coded(push=error_feedback(one_bit()), pull=difference(affine(bits=8)))",
        "pipelined(coded(push=qsgd(levels=8)), own_steps=True)",
    )
    found = {}
    for policy, transport in (("asp", transports[0]), ("bsp", transports[1])):
        options = {"updates": 40, "transport": transport, "seed": 4}
        runs = [
            dml.train(problem, TWELVE, POLICIES[policy](), OPTIMIZERS["momentum"], engine=engine, **options)
            for engine in ("simulate", "devices")
        ]
        found[f"{policy} {transport}"] = relative_error(*(flat(run.params) for run in runs))
    return found


def local_steps(problem):
    """Errors of FedAvg, DiLoCo and asynchronous DiLoCo against a replay on one device."""
    kept = dml.local_steps(4, optax.adamw(3e-3), keep_state=True)
    methods = {
        "FedAvg": (dml.Method(dml.bsp(), local=dml.local_steps(4, optax.sgd(0.1))), optax.sgd(1.0)),
        "DiLoCo": (dml.Method(dml.bsp(), local=kept), optax.sgd(0.7, momentum=0.9, nesterov=True)),
        "asynchronous DiLoCo": (
            dml.Method(dml.asp(), local=kept),
            optax.sgd(0.1, momentum=0.9, nesterov=True),
        ),
    }
    found = {}
    for name, (method, outer) in methods.items():
        runs = [
            dml.train(problem, TWELVE, method, outer, updates=20, seed=4, engine=engine)
            for engine in ("simulate", "devices")
        ]
        found[name] = relative_error(*(flat(run.params) for run in runs))
    return found


def aggregates(problem):
    """Errors of aggregates against a replay on one device, in lock-step and in wavefronts."""
    methods = {
        "median": dml.Method(dml.bsp(), aggregate="median()"),
        "trimmed": dml.Method(dml.k_async(5), aggregate="trimmed_mean(0.25)"),
        "clipped": dml.Method(dml.ssp(3), aggregate="clipped(0.5)"),
    }
    found = {}
    for name, method in methods.items():
        runs = [
            dml.train(problem, TWELVE, method, optax.sgd(0.1), updates=20, seed=4, engine=engine)
            for engine in ("simulate", "devices")
        ]
        found[name] = relative_error(*(flat(run.params) for run in runs))
    return found


def shardings(problem):
    """On how many devices gradients lie, and how many of the tasks each device has."""
    found, contributions = [], mesh.contributions

    def recorded(*args):
        computed = contributions(*args)
        leaf = jax.tree.leaves(computed)[0]
        found.append([leaf.sharding.num_devices, len(leaf), len(leaf.addressable_data(0))])
        return computed

    mesh.contributions = recorded
    compare(problem, TWELVE, "k_async", "adam")
    mesh.contributions = contributions
    return found


def page():
    """Errors of the gradients of the code blocks in docs/devices.md against `jax.grad` of the mean loss."""
    text = (Path(__file__).parents[1] / "docs" / "devices.md").read_text(encoding="utf-8")
    problem = dml.problems.digits_mlp()
    params = problem.init(jax.random.key(1))
    batch = jax.tree.map(lambda column: jnp.asarray(column[:64]), problem.data)

    def loss(params, batch):
        return problem.losses(params, batch).mean()

    errors = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        names = {"loss": loss, "params": params, "batch": batch}
        exec(block, names)
        if "gradient" in names:
            errors[re.search(r"jax\.(pmap|shard_map)\(", block)[1]] = relative_error(
                flat(names["gradient"]), flat(jax.grad(loss)(params, batch))
            )
    return errors


def threads(problem):
    """A run whose workers are threads, each on its own device, against its replay; and who was where."""
    seen = set()
    gradient = Stepper.gradient

    def noting(self, *arguments):
        found = gradient(self, *arguments)
        seen.update(str(device) for leaf in jax.tree.leaves(found) for device in leaf.devices())
        return found

    Stepper.gradient = noting
    errors = {}
    for policy in FEW:
        rule, optimizer = ALL_POLICIES[policy](), OPTIMIZERS["momentum"]
        engine = dml.engines.threads(time_scale=0.05)
        run = dml.train(problem, MIXED, rule, optimizer, updates=60, engine=engine)
        errors[policy] = relative_error(
            flat(run.params), flat(dml.replay(run.trace, problem, optimizer).params)
        )
    Stepper.gradient = gradient
    return {"errors": errors, "devices": len(seen)}


def main():
    jax.config.update("jax_num_cpu_devices", 8)  # before JAX's first operation
    problem = plane()
    four = table(problem, [(policy, "sgd", "4") for policy in sys.argv[1:]])
    result = {"programs": mesh.contributions._cache_size(), "float32": four | table(problem, FLOAT32)}
    result["shardings"] = shardings(problem)
    result["three"] = compare(problem, MIXED, "ssp", "sgd", jax.devices()[:3])
    result["additive"] = additive()
    result["page"] = page()
    result["threads"] = threads(problem)
    with jax.enable_x64(True):
        # In 64 bits hardly a value is so near to where codecs round that an error of rounding moves it over.
        result["coded"] = coded(plane("float64"))
        result["local_steps"] = local_steps(plane("float64"))
        result["aggregates"] = aggregates(plane("float64"))
        result["float64"] = table(plane("float64"), FLOAT64)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
