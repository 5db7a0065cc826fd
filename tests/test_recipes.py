"""The recipes of the contributors' page run as written."""

import os
import re
import runpy
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
import pytest
from engine_runs import check_replay, plane, same_bits

import dmlcore as dml
from dmlcore.reproduce import claims
from dmlcore.reproduce.command import main
from dmlcore.reproduce.papers import PAPERS
from dmlcore.training.batches import INIT, run_key

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def recipe(title, number=0, language="python"):
    """The code of a section, as text."""
    section = re.search(
        rf"^## {title}$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return re.findall(rf"```{language}\n(.*?)```", section[1], re.DOTALL)[number]


def run(title, number=0):
    names: dict = {}
    exec(compile(recipe(title, number), f"CONTRIBUTING.md, {title}", "exec"), names)
    return names


def test_a_new_policy():
    drop_stale = run("A new policy")["drop_stale"]
    cluster = dml.Cluster.uniform(8).with_faults(dml.faults.Crash(1, 0.1, 0.2)).with_stragglers(9)
    trace = dml.simulate(drop_stale(9), cluster, updates=300)
    applied = trace.tasks[trace.tasks["update"] >= 0]
    assert (applied["update"] - applied["version_read"]).max() <= 9
    assert (trace.tasks["update"] == -1).sum() > 8, "some were dropped"
    calm = dml.Cluster.uniform(8).with_stragglers(9)
    loose, asp = (dml.simulate(policy, calm, updates=300) for policy in (drop_stale(10**6), dml.asp()))
    assert loose.tasks.equals(asp.tasks)


def test_a_new_aggregate():
    rule, problem = run("A new aggregate")["majority"](), plane()
    engine = dml.engines.threads(time_scale=0.05)
    given = problem, dml.Cluster.uniform(3), dml.k_batch_async(2), optax.sgd(0.25)
    start = problem.init(run_key(0, INIT))
    ran = dml.train(*given, updates=1, engine=engine, aggregate=rule)
    moved = [np.asarray(a - b) for a, b in zip(*map(jax.tree.leaves, (ran.params, start)), strict=True)]
    assert {*np.concatenate([leaf.ravel() for leaf in moved]).round(4).tolist()} == {-0.25, 0.0, 0.25}
    assert same_bits(ran.params, dml.replay(ran.trace, problem, given[3], aggregate=rule).params)


@pytest.mark.parametrize("policy", [dml.asp(), dml.k_sync(2)], ids=str)
def test_a_new_engine(policy):
    pool, problem = run("A new engine")["pool"], plane()
    cluster = dml.Cluster.uniform(3).with_faults(dml.faults.Crash(1, 0.2, 0.2))
    ran = dml.train(problem, cluster, policy, optax.sgd(0.1), updates=60, engine=pool(0.1), eval_every=60)
    assert ran.trace.metadata["engine"] == "pool"
    assert len(ran.trace.updates) == 60
    check_replay(ran, problem, optax.sgd(0.1))


def test_a_new_problem():
    wine = run("A new problem")["wine"]
    problem = wine()
    assert wine() is problem
    ran = dml.train(problem, dml.Cluster.uniform(4), dml.ssp(2), optax.sgd(0.2), updates=200, batch_size=16)
    assert ran.history["loss"].iloc[-1] < 0.2 * ran.history["loss"].iloc[0]
    assert ran.history["accuracy"].iloc[-1] > 0.95
    weights = np.zeros((13, 3))
    batch = {name: rows[:5] for name, rows in problem.data.items()}
    losses = problem.losses({"weights": weights, "bias": np.zeros(3)}, batch)
    assert losses == pytest.approx(np.full(5, np.log(3)))


@pytest.mark.full  # its transformer compiles for half a minute; other recipes and pages use the same calls
def test_a_model_of_your_own(tmp_path, monkeypatch, capsys):
    title = "A model of your own, non-IID shards, DiLoCo against ASP"
    monkeypatch.chdir(tmp_path)
    names = run(title)
    exec(compile(recipe(title, 1), "CONTRIBUTING.md, comparison", "exec"), names)
    plt.close("all")
    assert [path.name for path in tmp_path.iterdir()] == ["letters.png"]
    said = capsys.readouterr().out
    for number in re.findall(r"# (c = [\d.]+)", recipe(title, 1)):
        assert number in said, "what the page says of the links"

    problem, runs = names["problem"], names["runs"]
    shares = np.zeros((8, 8))  # of the languages among each worker's texts
    np.add.at(shares, (problem.owner, problem.data["language"]), 1)
    shares /= shares.sum(1, keepdims=True)
    assert (shares.max(1) > 2 / 8).all(), "no worker has all languages alike"
    taken = {column: dml.metrics.time_to(runs, "loss", 2.3, column=column) for column in ("time", "bytes")}
    assert np.isfinite(taken["time"]).all(), "both learn: they begin at 3.3"
    assert (4 * taken["bytes"]["DiLoCo"] < taken["bytes"]["ASP"]).all(), "it sends once in 16 steps"


@pytest.mark.full  # test_keys.py has dropout, and test_batch_statistics runs the code
def test_dropout():
    make = run("Dropout, augmentation, batch statistics")["digits_with_dropout"]
    cluster, sgd = dml.Cluster.uniform(4), optax.sgd(0.2)
    some, none, plain = (
        dml.train(problem, cluster, dml.bsp(), sgd, updates=300).history
        for problem in (make(), make(0.0), dml.problems.digits_mlp())
    )
    assert np.allclose(none["loss"], plain["loss"], rtol=1e-4)
    assert some["loss"].iloc[-1] > 1.1 * plain["loss"].iloc[-1], "it is harder to fit"
    assert some["accuracy"].iloc[-1] > 0.85


def test_batch_statistics():
    """A gradient step of rate 1 is the update of flax."""
    import jax
    from flax import nnx

    names = run("Dropout, augmentation, batch statistics", 1)
    problem = names["normalised_digits"]()
    params = problem.init(jax.random.key(1))
    batch = jax.tree.map(lambda leaf: leaf[:24], problem.data)
    step = jax.grad(lambda p: problem.losses(p, batch).mean())(params)["statistics"]["norm"]
    graph = nnx.split(names["Normalised"](nnx.Rngs(0)), nnx.Param, nnx.BatchStat)[0]
    model = nnx.merge(graph, params["weights"], params["statistics"])
    model(batch["inputs"])
    for name, updated in (("mean", model.norm.mean), ("var", model.norm.var)):
        moved = params["statistics"]["norm"][name] - step[name]
        np.testing.assert_allclose(moved, np.asarray(updated[...]), rtol=1e-5, atol=1e-6)


@pytest.mark.full  # test_coupled trains on whole batches; the test before has the recipe's code
def test_batch_statistics_are_trained():
    """Running statistics come to those of the data."""
    import jax

    names = run("Dropout, augmentation, batch statistics", 1)
    problem = names["normalised_digits"]()
    cluster, optimizer = dml.Cluster.from_speeds([1000, 600, 1700]), names["optimizer"]
    ran = dml.train(problem, cluster, dml.bsp(), optimizer, updates=600)
    assert ran.history["test_loss"].iloc[-1] < 0.25
    kernel, bias = (ran.params["weights"]["hidden"][name] for name in ("kernel", "bias"))
    hidden = problem.data["inputs"] @ kernel + bias
    gap = ran.params["statistics"]["norm"]["mean"] - hidden.mean(0)
    assert (abs(gap) < 0.3 * hidden.std(0)).all()
    again = dml.replay(ran.trace, problem, optimizer)
    assert all(map(np.array_equal, *map(jax.tree.leaves, (ran.params, again.params))))


def test_a_new_paper(tmp_path, monkeypatch, capsys):
    """Through the runner, as `python3 paper_repro.py example` would."""
    import nbformat
    from nbformat import v4

    cell = recipe("A new paper", 1)
    (tmp_path / "example.py").write_text(recipe("A new paper"), encoding="utf-8")
    (tmp_path / "example.toml").write_text(recipe("A new paper", language="toml"), encoding="utf-8")
    paper = runpy.run_path(str(tmp_path / "example.py"))["PAPER"]
    assert paper.key not in PAPERS
    parameters = v4.new_code_cell(
        'scale = "quick"\nseeds = 8\noutput = ""', metadata={"tags": ["parameters"]}
    )
    cells = [parameters, v4.new_code_cell("from example import PAPER\n" + cell)]
    spec = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    (tmp_path / "notebooks").mkdir()
    nbformat.write(v4.new_notebook(cells=cells, metadata=spec), tmp_path / "notebooks" / paper.notebook)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PAGE.parent)]))
    code = main([paper.key, "--seeds", "8"], root=tmp_path, papers={paper.key: paper})
    assert code == 0, capsys.readouterr().out
    folder = tmp_path / "runs" / paper.key / "figures"
    (result,) = claims.read(folder / "claims.json").claims
    assert result.verdict == "reproduced"
    assert claims.read(folder / "claims.json").runs[0].command.startswith("python3 paper_repro.py example")
    assert (folder / "timeline.png").is_file()
    assert paper.figures["timeline.png"] in (tmp_path / "runs/report.html").read_text()
