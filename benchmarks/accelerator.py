"""Lanes side by side against one lane, and unrolled steps: for an accelerator.

.venv/bin/python benchmarks/accelerator.py
.venv/bin/python benchmarks/accelerator.py --problems digits --lanes 1 8 --updates 200

It needs no network, and runs on a CPU as well, where it leaves out what would take too long.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax
from rich.table import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import random_lenet
from timing import console, quartiles, race, reported, show_race, spread

import dmlcore as dml
from dmlcore.training import replay
from dmlcore.training.replay import Replay

PROBLEMS = {
    "digits": ("digits MLP", dml.problems.digits_mlp),
    "lenet": ("LeNet on images of noise", random_lenet),
    "transformer": ("transformer of 18,000 parameters", dml.problems.language_model),
}
WORKERS, LEAST_UPDATES = 8, 8
ON_CPU = jax.default_backend() == "cpu"


def trace_of(workers, updates, seed=0):
    cluster = dml.Cluster.uniform(workers, jitter=stats.expon())
    return dml.simulate(dml.asp(), cluster, updates=updates, seed=seed)


def grid(lanes, updates):
    """A trace and an optimizer of each lane: seeds x learning rates, about as many of each."""
    seeds = 1 << ((lanes.bit_length() - 1) // 2)
    while lanes % seeds:
        seeds //= 2
    traces, rates = [trace_of(WORKERS, updates, seed) for seed in range(seeds)], lanes // seeds
    optimizers = [optax.sgd(rate) for rate in np.geomspace(0.01, 0.2, rates)]
    return [trace for trace in traces for _ in range(rates)], optimizers * seeds


def training(driver, optimizers, updates):
    """Returns what is timed: training from the start, with all that is made before it made."""
    fresh = driver.again(optimizers)
    jax.block_until_ready(fresh.state())

    def train():
        fresh.advance(updates)
        jax.block_until_ready(fresh.state())

    return train


def seconds_of(run):
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def program_of(driver, optimizers, updates):
    """The compiled program with which a driver trains."""
    caught, loop = [], replay.advance_to_marks
    replay.advance_to_marks = lambda *given: caught.append(loop.compile(*given)) or loop(*given)
    try:
        driver.again(optimizers).advance(updates)
    finally:
        replay.advance_to_marks = loop
    return caught[0]


def peak(program):
    """MiB that a program needs at once: arguments, results and what it makes on its way."""
    memory = program.memory_analysis()
    if memory is None:
        return float("nan")
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return (held + memory.temp_size_in_bytes) / 2**20


def against_lanes(name, problem, counts, updates, repeats, budget):
    """Gradients per second of so many lanes, each of `budget` seconds at most for all its rounds."""
    contenders, work, notes, rate = {}, {}, {}, None
    for lanes in counts:
        own = updates
        if rate is not None:
            own = min(updates, int(budget * rate / (lanes * (repeats + 2))))
        if own < LEAST_UPDATES:
            console.print(
                f"{name}: {lanes:,} lanes left out: {LEAST_UPDATES} updates, {repeats + 2} times, would take "
                f"{LEAST_UPDATES * lanes * (repeats + 2) / rate:,.0f} s, more than {budget:g} s (--budget)"
            )
            continue
        traces, optimizers = grid(lanes, own)
        begun = time.perf_counter()
        driver = Replay(traces, problem, optimizers)
        jax.block_until_ready(driver.state())
        ready = time.perf_counter() - begun
        mebibytes = peak(program_of(driver, optimizers, own))
        rate = lanes * own / seconds_of(training(driver, optimizers, own))
        contenders[lanes] = lambda given=(driver, optimizers, own): training(*given)
        work[lanes], notes[lanes] = lanes * own, (own, ready, mebibytes)
    seconds = race(contenders, repeats, prepared=True)
    table = Table(title=f"asp(), {WORKERS} workers, {name}: lanes side by side", title_justify="left")
    first = min(seconds)
    per_second = {lanes: work[lanes] / values for lanes, values in seconds.items()}
    columns = (
        "lanes",
        "updates",
        "gradients per second",
        f"times {first} lane" + "s" * (first > 1),
        "quartiles",
    )
    for column in (*columns, "µs a step", "MiB at once", "s to set up"):
        table.add_column(column, justify="right")
    for lanes, rates in per_second.items():
        own, ready, mebibytes = notes[lanes]
        ratio = rates / per_second[first]
        step = 1e6 * np.median(seconds[lanes]) / own
        numbers = f"{np.median(rates):,.0f}", f"{quartiles(ratio)[1]:.2f}", spread(ratio)
        table.add_row(f"{lanes:,}", f"{own:,}", *numbers, f"{step:,.0f}", f"{mebibytes:,.1f}", f"{ready:.2f}")
    console.print(table)


def drivers_against_each_other(title, drivers, updates, repeats, unit, each=1):
    """Races drivers of the same traces; the first is the baseline."""
    contenders = {
        name: lambda given=(driver, optimizers, updates): training(*given)
        for name, (driver, optimizers) in drivers.items()
    }
    show_race(title, race(contenders, repeats, prepared=True), each * updates, unit, next(iter(drivers)))


def unrolled(name, problem, lanes, updates, repeats):
    traces, optimizers = grid(lanes, updates)
    drivers = {
        f"{steps} step{'s' * (steps > 1)} in a turn": (
            Replay(traces, problem, optimizers, unroll=steps),
            optimizers,
        )
        for steps in (1, 4, 8)
    }
    title = f"asp(), {WORKERS} workers, {name}: steps in a turn of the loop, {lanes} lane{'s' * (lanes > 1)}"
    drivers_against_each_other(title, drivers, updates, repeats, "gradients", lanes)


def updates_within(problem, updates, repeats, budget):
    """How many updates of one lane take about `budget` seconds in all rounds."""
    traces, optimizers = grid(1, 4 * LEAST_UPDATES)
    driver = Replay(traces, problem, optimizers)
    driver.advance(4 * LEAST_UPDATES)  # compiled
    each = seconds_of(training(driver, optimizers, 4 * LEAST_UPDATES)) / (4 * LEAST_UPDATES)
    return max(LEAST_UPDATES, min(updates, int(budget / each / (repeats + 1))))


def main(given):
    for key in given.problems:
        name, make = PROBLEMS[key]
        problem = make()
        updates = updates_within(problem, given.updates, given.repeats, given.budget)
        against_lanes(name, problem, given.lanes, updates, given.repeats, given.budget)
        if key == "digits":
            for lanes in [each for each in given.lanes if each <= 32][:2]:
                unrolled(name, problem, lanes, max(LEAST_UPDATES, updates // lanes), given.repeats)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=[*PROBLEMS])
    parser.add_argument("--lanes", nargs="+", type=int, default=[1, 32, 256, 1024], help="ascending")
    parser.add_argument("--updates", type=int, default=2000, help="of a lane, at most")
    parser.add_argument("--repeats", type=int, default=3 if ON_CPU else 7, help="rounds that count")
    seconds = "of all rounds of one contender, about; fewer updates where it would take longer"
    parser.add_argument("--budget", type=float, default=4 if ON_CPU else 20, help=f"seconds {seconds}")
    return parser.parse_args()


if __name__ == "__main__":
    own = arguments()
    with reported("accelerator"):
        device = jax.devices()[0]
        console.print(f"device: {device.device_kind} ({device.platform})", highlight=False)
        main(own)
        held = device.memory_stats()
        if held and "peak_bytes_in_use" in held:
            console.print(f"peak memory of the device: {held['peak_bytes_in_use'] / 2**20:,.0f} MiB")
