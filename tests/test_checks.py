"""Arguments: what is no number is refused by name, and every kind of number is welcome."""

import ast
import math
import re
from fractions import Fraction
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlcore as dml
from dmlcore import checks

NO_NUMBERS = [
    "1", b"1", True, np.True_, jnp.array(True), np.str_("1"), np.array("1"), np.array([1, 2]), 1j, None
]  # fmt: skip
WHOLE = [2, np.int8(2), np.uint64(2), np.array(2), jnp.int32(2), jnp.array(2)]
FLOATS = [2.0, np.float16(2), np.float64(2), np.array(2.0), jnp.float32(2), jnp.bfloat16(2), Fraction(2)]
CLUSTER = dml.Cluster.uniform(2)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match=r"^speed: expected a number > 0, got .*$"):
        checks.real("speed", value, above=0)
    with pytest.raises(ValueError, match=r"^k: expected a whole number >= 0, got .*$"):
        checks.integer("k", value, low=0)


@pytest.mark.parametrize("value", [*WHOLE, *FLOATS], ids=repr)
def test_numbers_of_all_kinds_are_welcome(value):
    assert (found := checks.real("speed", value, above=0)) == 2
    assert type(found) is float
    assert [*checks.for_each("speed", value, 3)] == [2, 2, 2]


@pytest.mark.parametrize("value", WHOLE, ids=repr)
def test_whole_numbers_of_all_kinds_are_welcome(value):
    assert (found := checks.integer("k", value, low=0)) == 2
    assert type(found) is int
    assert checks.at_least(2)("k", value) == 2


@pytest.mark.parametrize("value", FLOATS, ids=repr)
def test_whole_numbers_are_no_floats(value):
    with pytest.raises(ValueError, match=r"^k: expected a whole number >= 0, got .*$"):
        checks.integer("k", value, low=0)


def test_infinity_is_a_number_where_no_limit_excludes_it():
    assert checks.real("goal", -math.inf) == -math.inf
    with pytest.raises(ValueError, match=r"goal: expected a number, got nan$"):
        checks.real("goal", math.nan)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("seconds", lambda: dml.simulate(dml.asp(), CLUSTER, seconds="1")),
        ("seconds", lambda: dml.simulate(dml.asp(), CLUSTER, seconds=True)),
        ("updates", lambda: dml.simulate(dml.asp(), CLUSTER, updates=True)),
        ("staleness", lambda: dml.ssp(True)),
        ("staleness", lambda: dml.ssp("inf")),
        ("weight", lambda: dml.ssp(3, weight=True)),
        ("latency", lambda: dml.Cluster.uniform(3, latency="0.5")),
        ("bandwidth", lambda: dml.Cluster.uniform(3, bandwidth=[1.0, True, 1.0])),
        ("l2", lambda: dml.problems.logistic_regression("0.1")),
        ("distance", lambda: dml.theory.regret_bound(True, 1.0, 1, 4, 100)),
        ("tensor_shapes", lambda: dml.simulate(dml.asp(), CLUSTER, updates=1, tensor_shapes=5)),
        ("tensor_shapes", lambda: dml.simulate(dml.asp(), CLUSTER, updates=1, tensor_shapes="55")),
        (
            "compensation",
            lambda: dml.train(
                dml.problems.digits_mlp(), CLUSTER, dml.asp(), optax.sgd(0.1), updates=1, compensation=True
            ),
        ),
    ],
)
def test_text_and_bools_are_refused_by_name(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: expected (a (whole )?number|several values).*, got "):
        call()


def test_flags_stay_bools():
    assert dml.problems.linear_regression(30, 3, standardize=True).num_samples == 30
    assert dml.transport.pipelined(own_steps=True).own_steps


ROOT = Path(__file__).parents[1]
SOURCES = [*(ROOT / "dmlcore").rglob("*.py"), ROOT / "paper_repro.py", ROOT / "bootstrap.py"]
OTHER_FORMS = re.compile(r": got |allowed is|did you mean|was it called|\bgot\b[^\n\"]*, expected\b")


@pytest.mark.parametrize(
    "text", ["k: got 9, allowed is 8", "1 word, got 2, expected 3", "x; did you mean y?"]
)
def test_other_forms_are_found(text):
    assert OTHER_FORMS.search(text)


def test_messages_have_one_form():
    """`<argument>: expected <what>, got <value>; try <what to do>`, as `checks.message` writes it."""
    found = {path.name: OTHER_FORMS.findall(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert not {name: texts for name, texts in found.items() if texts}


def test_what_to_try_is_a_hint():
    """What was expected is one phrase: advice and reasons do not follow it after a semicolon."""
    wrong, calls = [], 0
    raising = re.compile(r"\b(fail|reject|message)\(")
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    for path in filter(lambda path: raising.search(texts[path]), texts):
        for node in ast.walk(ast.parse(texts[path])):
            if not isinstance(node, ast.Call) or len(node.args) < 3:
                continue
            if getattr(node.func, "attr", getattr(node.func, "id", "")) not in ("fail", "reject", "message"):
                continue
            calls += 1
            parts = [each.value for each in ast.walk(node.args[2]) if isinstance(each, ast.Constant)]
            if re.search(r"; |\btry\b|^expected\b", "".join(map(str, parts))):
                wrong.append((path.name, node.lineno))
    assert not wrong
    assert calls > 200
