"""Problems of flax modules, and the language model on text whose entropy is known."""

import math
from functools import partial
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import test_readme
from flax import linen, nnx
from flax.core import freeze

import dmlcore as dml
from dmlcore.problems import from_flax, language_model
from dmlcore.problems.language import entropies, source
from dmlcore.problems.modules import functions
from dmlcore.problems.transformer import Transformer
from dmlcore.problems.validation import check_problem

CLUSTER = dml.Cluster.from_speeds([1000, 600])
KEY = jax.random.key(3)


class Network(nnx.Module):
    """Two classes of four numbers, with or without dropout."""

    def __init__(self, rngs, rate=0.0):
        self.hidden, self.out = nnx.Linear(4, 16, rngs=rngs), nnx.Linear(16, 2, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs) if rate else None

    def __call__(self, x):
        hidden = nnx.relu(self.hidden(x))
        return self.out(self.dropout(hidden) if self.dropout else hidden)


def dropping(rngs):
    return Network(rngs, 0.5)


def rows(count=64):
    inputs = np.random.default_rng(0).normal(size=(count, 4)).astype("float32")
    return {"inputs": inputs, "labels": (inputs.sum(1) > 0).astype("int32")}


def cross_entropy(scores, batch):
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch["labels"])


def right(scores, batch):
    return scores.argmax(-1) == batch["labels"]


class Switched(linen.Module):
    """A network of `flax.linen` with dropout, if it trains."""

    @linen.compact
    def __call__(self, x, train=False):
        return linen.Dense(2)(linen.Dropout(0.5, deterministic=not train)(x))


def wrapped(module, rngs):
    return nnx.bridge.ToNNX(module, rngs=rngs).lazy_init(rows()["inputs"])


class Told(nnx.Module):
    """The same, told whether it trains."""

    def __init__(self, rngs):
        self.model, self.deterministic = wrapped(Switched(), rngs), False

    def __call__(self, x):
        return self.model(x, train=not self.deterministic)


@pytest.fixture(scope="module")
def plain():
    return from_flax(Network, cross_entropy, rows(), rows(20), metrics={"accuracy": right})


@pytest.fixture(scope="module")
def dropped():
    return from_flax(dropping, cross_entropy, rows(), rows(20))


def test_parameters_start_as_the_module_initialises_them(plain):
    own = nnx.to_pure_dict(nnx.state(Network(nnx.Rngs(KEY)), nnx.Param))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), plain.init(KEY), own)


def test_losses_and_metrics_are_those_of_the_module(plain):
    model, batch = Network(nnx.Rngs(KEY)), rows()
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    losses = np.asarray(cross_entropy(model(batch["inputs"]), batch))
    np.testing.assert_allclose(plain.losses(params, batch), losses, rtol=1e-5)
    found = plain.evaluate(params, plain.eval_data)
    test = {name: rows(20)[name] for name in batch}
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert found["test_loss"] == pytest.approx(
        float(cross_entropy(model(test["inputs"]), test).mean()), rel=1e-5
    )
    assert found["accuracy"] == pytest.approx(float(right(model(test["inputs"]), test).mean()))


def test_dropout_depends_on_the_key_of_a_sample_alone(plain, dropped):
    params, batch = dropped.init(KEY), rows(8)
    keys, losses = jax.random.split(KEY, 8), jax.jit(dropped.losses)
    found = losses(params, batch, keys)
    assert not np.allclose(found, plain.losses(params, batch))
    assert not np.allclose(found, losses(params, batch, keys[::-1]))
    np.testing.assert_allclose(found[1:], losses(params, batch, keys.at[0].set(KEY))[1:], rtol=1e-6)
    several = [losses(params, batch, keys).mean() for keys in jax.random.split(jax.random.key(0), (100, 8))]
    assert np.mean(several) >= plain.losses(params, batch).mean()  # Jensen: the loss is convex in the scores
    metrics = dropped.evaluate(params, dropped.eval_data), plain.evaluate(params, plain.eval_data)
    assert metrics[0]["test_loss"] == metrics[1]["test_loss"]


@pytest.mark.full  # test_bits has a network with random keys
def test_it_trains_and_replays_to_the_same_bits(dropped):
    run = dml.train(dropped, CLUSTER, dml.ssp(2), optax.sgd(0.3), updates=120, batch_size=8, eval_every=60)
    assert run.history["loss"].iloc[-1] < 0.5 * run.history["loss"].iloc[0]
    again = dml.replay(run.trace, dropped, optax.sgd(0.3))
    assert all(map(np.array_equal, *map(jax.tree.leaves, (run.params, again.params))))


def test_a_coupled_problem_has_one_key_for_its_batch():
    made = from_flax(dropping, cross_entropy, rows(), coupled=True)
    params, keys = made.init(KEY), jax.random.split(KEY, 64)
    found = made.losses(params, rows(), keys)
    assert made.coupled
    assert np.array_equal(found, made.losses(params, rows(), keys.at[1:].set(keys[0])))
    assert set(made.evaluate(params, made.eval_data)) == {"loss"}


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda rngs: nnx.BatchNorm(4, rngs=rngs), r"parameters alone .* got \['BatchStat'\]"),
        (lambda rngs: 3, "a function from nnx.Rngs to a module of flax.nnx, got 3"),
        (lambda rngs: nnx.Dropout(0.5, rngs=rngs), "a module without parameters"),
        (linen.Dense(2), "got a module of flax.linen; try lambda rngs: nnx.bridge.ToNNX"),
        (linen.Dense, "got a module of flax.linen; try lambda rngs: nnx.bridge.ToNNX"),
        (Network(nnx.Rngs(0)), r"got the module Network itself; try lambda rngs: Network\(..., rngs=rngs\)"),
        (lambda rngs: nnx.bridge.ToNNX(Switched(), rngs=rngs), "linen with the argument train"),
    ],
)
def test_what_is_no_model_is_refused(build, told):
    with pytest.raises(ValueError, match=told):
        from_flax(build, cross_entropy, rows())


@pytest.mark.parametrize("make", [jnp.asarray, np.asarray, lambda array: nnx.data(jnp.asarray(array))])
def test_arrays_of_a_module_are_constants(make):
    class Masked(nnx.Module):
        def __init__(self, rngs):
            self.out, self.mask = nnx.Linear(4, 2, rngs=rngs), make(np.float32([1, 0, 1, 0]))

        def __call__(self, x):
            return self.out(x * self.mask)

    made = from_flax(Masked, cross_entropy, rows())
    params = made.init(KEY)
    assert [*params] == ["out"]
    scores = rows()["inputs"] * np.float32([1, 0, 1, 0]) @ params["out"]["kernel"]
    np.testing.assert_allclose(made.losses(params, rows()), cross_entropy(scores, rows()), rtol=1e-5)


@pytest.mark.parametrize("build", [Network, dropping])
@pytest.mark.parametrize("given", ["loss", "metrics"])
def test_a_mean_is_refused(build, given):
    def mean(scores, batch):
        return cross_entropy(scores, batch).mean()

    judges = {"loss": mean} if given == "loss" else {"loss": cross_entropy, "metrics": {"accuracy": mean}}
    told = r"(loss|accuracy): expected shape \(64,\), a number for each of 64 samples, got shape \(\)"
    with pytest.raises(ValueError, match=told):
        check_problem(from_flax(build, data=rows(), **judges))


def test_with_dropout_a_loss_may_have_no_axis_for_one_sample(dropped):
    made = from_flax(dropping, lambda scores, batch: cross_entropy(scores, batch).squeeze(), rows())
    given = made.init(KEY), rows(6), jax.random.split(KEY, 6)
    np.testing.assert_array_equal(made.losses(*given), dropped.losses(*given))


def test_the_objective_keeps_its_name():
    with pytest.raises(ValueError, match="metrics: expected other names"):
        from_flax(Network, cross_entropy, rows(), metrics={"loss": right})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"loss": 3}, "loss: expected a function, got 3"),
        ({"metrics": {"accuracy": 0}}, r"metrics\['accuracy'\]: expected a function, got 0"),
        ({"metrics": [right]}, "metrics: expected a dict"),
        ({"data": {"x": np.ones((8, 4))}}, r"data: expected a dict with the entry inputs, .*got \['x'\]"),
        (
            {"data": {"inputs": [[1.0]]}},
            r"data\['inputs'\]\[0\]\[0\]: expected a NumPy or JAX array, got 1.0",
        ),
        ({"test_data": rows() | {"labels": np.zeros(7)}}, r"test_data\['labels'\]: expected \d+ rows"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_arguments_are_checked_first(given, told):
    with pytest.raises(ValueError, match=told):
        from_flax(**{"build": Network, "loss": cross_entropy, "data": rows()} | given)


def test_other_mappings_are_as_good_as_dicts(plain):
    made = from_flax(Network, cross_entropy, freeze(rows()), metrics=MappingProxyType({"accuracy": right}))
    assert set(made.evaluate(made.init(KEY), made.eval_data)) == {"loss", "accuracy"}
    np.testing.assert_array_equal(
        made.losses(made.init(KEY), made.data), plain.losses(plain.init(KEY), rows())
    )


def test_layers_that_are_stacked_have_streams_of_their_own():
    class Stacked(nnx.Module):
        def __init__(self, rngs):
            @nnx.split_rngs(splits=2)
            @nnx.vmap
            def layers(rngs):
                return nnx.Dropout(0.5, rngs=rngs)

            self.drop, self.out = layers(rngs), nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            twice = nnx.vmap(lambda layer, x: layer(x), in_axes=(0, None))(self.drop, x)
            return self.out(twice.mean(0))

    made = from_flax(Stacked, cross_entropy, rows())
    found = made.losses(made.init(KEY), rows(6), jax.random.split(KEY, 6))
    assert np.isfinite(found).all()


def test_dropout_of_linen_is_told_whether_it_trains():
    made = from_flax(Told, cross_entropy, rows())
    params = made.init(KEY)
    judged = float(made.evaluate(params, made.eval_data)["loss"])
    found = made.losses(params, rows(), jax.random.split(KEY, 64)).mean()
    scores = wrapped(Switched(), nnx.Rngs(KEY))(rows()["inputs"])
    assert judged == pytest.approx(float(cross_entropy(scores, rows()).mean()), rel=1e-5)
    assert found != pytest.approx(judged, rel=0.01)


def test_dropout_of_linen_that_is_always_on_is_refused():
    always = linen.Sequential([linen.Dropout(0.5, deterministic=False), linen.Dense(2)])
    with pytest.raises(ValueError, match="needs PRNG"):
        check_problem(from_flax(partial(wrapped, always), cross_entropy, rows()))


@pytest.mark.full  # `flax` promises it; our part is to name it in the message above
def test_a_module_of_linen_is_wrapped():
    made = from_flax(partial(wrapped, linen.Dense(2)), cross_entropy, rows())
    assert not made.keyed
    run = dml.train(made, CLUSTER, dml.bsp(), optax.sgd(0.5), updates=40)
    assert run.history["loss"].iloc[-1] < 0.6 * run.history["loss"].iloc[0]


@pytest.mark.full  # its parts are tested above; the convolution and the transformer compile for long
def test_the_page_runs_as_written():
    names = test_readme.run(test_readme.ROOT / "docs" / "your_model.md")
    assert names["mlp"].keyed
    assert not names["cnn"].keyed
    assert names["run"].history["loss"].iloc[-1] < 0.5  # it counts to twelve


# Text


def test_the_source_is_stationary_and_its_entropy_is_that_of_its_text():
    chain = source(5)
    np.testing.assert_allclose(chain.following.sum(-1), 1)
    np.testing.assert_allclose(np.einsum("ab,abc->bc", chain.pairs, chain.following), chain.pairs, atol=1e-12)
    text = chain.text(50_000, 1)
    surprise = -np.log(chain.following[text[:-2], text[1:-1], text[2:]])
    rate = (chain.pairs * entropies(chain.following)).sum()
    assert surprise.mean() == pytest.approx(rate, abs=4 * surprise.std() / math.sqrt(len(text)))
    first = -np.log(chain.after_one[text[:-1], text[1:]])
    alone = (chain.pairs.sum(0) * entropies(chain.after_one)).sum()
    assert first.mean() == pytest.approx(alone, abs=4 * first.std() / math.sqrt(len(text)))
    assert chain.entropy(4) == pytest.approx((alone + 3 * rate) / 4)


def test_the_loss_of_a_language_model_is_its_expectation():
    """A model that knows nothing has the loss log 16."""
    problem = language_model(layers=1)
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), problem.shapes)
    chances = problem.eval_data["chances"]
    found = problem.evaluate(blank, problem.eval_data)["loss"]
    assert found == pytest.approx(problem.optimum + math.log(16) - entropies(chances).mean(), rel=1e-5)


@pytest.mark.full  # test_problems trains it by plain SGD, and holds it to the entropy, too
def test_no_language_model_is_below_the_entropy():
    problem = language_model(layers=1)
    run = dml.train(problem, CLUSTER, dml.bsp(), optax.adamw(1e-2), updates=150, batch_size=16)
    assert problem.optimum < run.history["loss"].iloc[-1] < 2.6


def test_a_letter_is_guessed_from_those_before_it():
    made = functions(lambda rngs: Transformer(16, 8, 8, 1, rngs))
    params, text = made.init(KEY), language_model(length=2_000, context=8).data[:2, :8]
    changed = np.array(text)
    changed[:, 5] = (changed[:, 5] + 1) % 16
    guesses = jax.jit(lambda each: made.judge(params, each))
    one, two = np.asarray(guesses(text)), np.asarray(guesses(changed))
    assert one.shape == (2, 8, 16)
    np.testing.assert_array_equal(one[:, :5], two[:, :5])
    assert (abs(one - two)[:, 5:].max(-1) > 1e-4).all()


def test_a_text_file_is_learnt(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat. " * 100, encoding="utf-8")
    problem = language_model(str(path), context=8, width=8, layers=1)
    letters = sorted({*"the cat sat on the mat. "})
    assert problem.optimum is None
    assert "".join(letters[place] for place in problem.data[0]) == "the cat s"
    assert problem.shapes["head"]["kernel"].shape == (8, len(letters))
    assert set(problem.evaluate(problem.init(KEY), problem.eval_data)) == {"loss"}
    assert language_model(path, context=8, width=8, layers=1) is problem
    with pytest.raises(ValueError, match=r"length, seed: expected the defaults .* got \(100000, 3\)"):
        language_model(path, seed=3)
    path.write_text("short", encoding="utf-8")
    with pytest.raises(ValueError, match="at least 340 letters, at most 256 different ones, got 5 letters"):
        language_model(str(path))


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("déjà vu".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"text: expected a file in UTF-8, got .*latin.txt', whose byte 1 is"
    ):
        language_model(path)
    with pytest.raises(ValueError, match=r"text: .* not the text itself, got 2400 letters$"):
        language_model("the cat sat on the mat. " * 100)
    with pytest.raises(ValueError, match="text: expected the path of a text file, or None, got 3"):
        language_model(3)
    with pytest.raises(FileNotFoundError):
        language_model(tmp_path / "none.txt")


def test_a_byte_order_mark_is_no_letter(tmp_path):
    (tmp_path / "marked.txt").write_text("abc" * 200, encoding="utf-8-sig")
    problem = language_model(tmp_path / "marked.txt", context=8, width=8, layers=1)
    assert problem.shapes["head"]["kernel"].shape == (8, 3)


@pytest.mark.parametrize("given", [{"width": 7}, {"context": 1}, {"length": 10}, {"layers": 0}])
def test_sizes_of_a_language_model_are_checked(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        language_model(**given)
