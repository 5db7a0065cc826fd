"""Whether a run gives what was published: the rule for numbers and for ledgers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlcore.reproduce import claims
from dmlcore.reproduce.agreement import RELATIVE, agreement, same, total

NUMBERS = st.one_of(st.none(), st.just(math.inf), st.floats(-1e9, 1e9))


@given(NUMBERS, NUMBERS)
def test_same_is_symmetric_and_holds_of_oneself(one, other):
    assert same(one, one)
    assert same(one, other) == same(other, one)


@given(st.floats(1e-6, 1e6), st.floats(0, 0.01))
def test_same_is_a_relative_difference(number, share):
    if abs(share - RELATIVE) > 1e-9:
        assert same(number, number * (1 - share)) == (share < RELATIVE)
        assert same(-number, -number * (1 - share)) == (share < RELATIVE)
    assert not same(number, -number)
    assert not same(number, math.inf)
    assert not same(number, None)


def ledger(first=(1.5, 2.5), second=(0.5, None), **fields):
    words = {"paper": "p", "statement": "so", "source": "ours", "data": "none", "metric": "m"}
    one = claims.Claim(id="p-1", expected=(1, None), **words)
    two = claims.Claim(id="p-2", expected=(1, None), parts=("A", "B"), **words)
    results = (claims.judge(one, first), claims.judge(two, {"A": second, "B": [math.inf, 3.0]}))
    run = {"paper": "p", "command": "c", "scale": "quick", "seeds": 2, "tuned_on": None, "parameters": {}}
    return claims.Ledger(**run | {"claims": results} | fields)


def test_a_run_that_agrees():
    found = agreement(ledger(), ledger((1.50001, 2.50001), (0.500001, None)))
    assert str(found) == "6 of 6 published numbers, 2 of 2 verdicts"
    assert not found.differences


def test_what_differs_is_named():
    found = agreement(ledger(), ledger((1.5, 0.5), (None, None)))
    assert str(found) == "4 of 6 published numbers, 1 of 2 verdicts"
    assert [str(each) for each in found.differences] == [
        "p p-1, seed 1: published 2.5, here 0.5",
        "p p-2, A, seed 0: published 0.5, here nothing",
        "p p-1: published reproduced, here mixed",
    ]
    twice = total([found, agreement(ledger(), ledger())])
    assert str(twice) == "10 of 12 published numbers, 3 of 4 verdicts"
    assert twice.differences == found.differences


def test_what_is_missing_is_told_and_what_is_new_is_not_counted():
    less = ledger(claims=ledger().claims[:1])
    found = agreement(ledger(), less)
    assert str(found) == "2 of 6 published numbers, 1 of 2 verdicts"
    assert str(found.differences[0]) == "p p-2, A, seed 0: published 0.5, here missing"
    assert str(agreement(less, ledger())) == "2 of 2 published numbers, 1 of 1 verdicts"


@pytest.mark.parametrize("other", [{"scale": "full"}, {"seeds": 3}, {"parameters": {"workers": 4}}])
def test_other_parameters_are_not_compared(other):
    assert agreement(ledger(), ledger(**other)) is None
