"""Run by test_devices.py in a process of its own, where the CPU is eight devices; prints one JSON object.

Its arguments are the cases to try, each a test of `TRIED` and a name there.
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
KEPT = dml.local_steps(4, optax.adamw(3e-3), keep_state=True)
STREAMED = dml.local_steps(4, optax.adamw(3e-3), keep_state=True, fragments=3, mixing=0.5)
CONTROLLED = dml.local_steps(4, optax.sgd(0.1), control_variates=True)
NESTEROV = optax.sgd(0.7, momentum=0.9, nesterov=True)
MEMORIES = "coded(push=error_feedback(one_bit()), pull=difference(affine(bits=8)))"
OWN_STEPS = "pipelined(coded(push=qsgd(levels=8)), own_steps=True)"
SPARSE = "coded(push=error_feedback(top_k(0.1)), pull=difference(random_k(0.5, unbiased=False)))"
LOW_RANK = "coded(push=error_feedback(power_sgd(2)))"
METHODS = {
    "memories": (dml.Method(dml.asp(), transport=MEMORIES), OPTIMIZERS["momentum"]),
    "sparse": (dml.Method(dml.asp(), transport=SPARSE), OPTIMIZERS["momentum"]),
    "low rank": (dml.Method(dml.asp(), transport=LOW_RANK), OPTIMIZERS["momentum"]),
    "own steps": (dml.Method(dml.asp(), transport=OWN_STEPS), OPTIMIZERS["momentum"]),
    "own steps in lock-step": (dml.Method(dml.bsp(), transport=OWN_STEPS), OPTIMIZERS["momentum"]),
    "FedAvg": (dml.Method(dml.bsp(), local=dml.local_steps(4, optax.sgd(0.1))), optax.sgd(1.0)),
    "DiLoCo": (dml.Method(dml.bsp(), local=KEPT), NESTEROV),
    "asynchronous DiLoCo": (dml.Method(dml.asp(), local=KEPT), optax.sgd(0.1, momentum=0.9, nesterov=True)),
    "Streaming DiLoCo": (dml.Method(dml.bsp(), transport="pipelined()", local=STREAMED), NESTEROV),
    "SCAFFOLD": (dml.Method(dml.sampled(5), local=CONTROLLED), optax.sgd(1.0)),
    "asynchronous SCAFFOLD": (dml.Method(dml.asp(), local=CONTROLLED), optax.sgd(0.1)),
    "median": (dml.Method(dml.bsp(), aggregate="median()"), OPTIMIZERS["sgd"]),
    "trimmed": (dml.Method(dml.k_async(5), aggregate="trimmed_mean(0.25)"), OPTIMIZERS["sgd"]),
    "clipped": (dml.Method(dml.ssp(3), aggregate="clipped(0.5)"), OPTIMIZERS["sgd"]),
}
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
        losses.append(float(replay.evaluate()["loss"]))
    assert run.history["update"].tolist() == list(MARKS)
    return {
        "params": relative_error(flat(replay.params()), flat(run.params)),
        "losses": float(np.max(np.abs(losses / run.history["loss"].to_numpy() - 1))),
        "dtype": str(flat(replay.params()).dtype),
    }


def ends(problem, method, optimizer, **options):
    """The parameters of a run on one device and on eight."""
    return [
        dml.train(problem, TWELVE, method, optimizer, seed=4, engine=engine, **options).params
        for engine in ("simulate", "devices")
    ]


def additive(policy):
    """Whether additive updates on eight devices leave the bits of a replay on one, and counts whole."""
    problem = dml.problems.lda(num_documents=48, document_length=12)
    one, eight = ends(problem, POLICIES[policy](), optax.identity(), updates=40, batch_size=3)
    check_topics(problem, eight)
    return bool((flat(one) == flat(eight)).all())


def float64(policy):
    with jax.enable_x64(True):
        return compare(plane("float64"), TWELVE, policy, "momentum")


def method(name):
    """Its error. In 64 bits hardly a value is so near to where codecs round that rounding moves it over."""
    with jax.enable_x64(True):
        return relative_error(*map(flat, ends(plane("float64"), *METHODS[name], updates=20)))


# By the name of a test: the cases that there are, and how they are tried.
TRIED = {
    "test_every_policy": (ALL_POLICIES, lambda policy: compare(plane(), MIXED, policy, "sgd")),
    "test_more_workers": (FEW, lambda policy: compare(plane(), TWELVE, policy, "adam")),
    "test_float64": ((*FEW, *COMPENSATED), float64),
    "test_additive_updates": (FEW, additive),
    "test_every_part_of_a_method": (METHODS, method),
}


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
    problem = plane()
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
    task = Stepper.task

    def noting(self, *arguments):
        found = task(self, *arguments)
        seen.update(str(device) for leaf in jax.tree.leaves(found) for device in leaf.devices())
        return found

    Stepper.task = noting
    errors = {}
    for policy in FEW:
        rule, optimizer = ALL_POLICIES[policy](), OPTIMIZERS["momentum"]
        engine = dml.engines.threads(time_scale=0.05)
        run = dml.train(problem, MIXED, rule, optimizer, updates=60, engine=engine)
        errors[policy] = relative_error(
            flat(run.params), flat(dml.replay(run.trace, problem, optimizer).params)
        )
    Stepper.task = task
    return {"errors": errors, "devices": len(seen)}


def main():
    jax.config.update("jax_num_cpu_devices", 8)  # before JAX's first operation
    problem, result = plane(), {}
    for case in sys.argv[1:]:
        test, _, name = case.partition(" ")
        result[case] = TRIED[test][1](name)
        if test == "test_every_policy":
            result["programs"] = mesh.contributions._cache_size()
    result["shardings"] = shardings(problem)
    result["three"] = compare(problem, MIXED, "ssp", "sgd", jax.devices()[:3])
    result["page"] = page()
    result["threads"] = threads(problem)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
