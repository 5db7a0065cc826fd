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


FIRST = (1.5, 2.5, *[1.5] * 6)


def ledger(first=FIRST, second=(0.5, None), **fields):
    words = {"paper": "p", "statement": "so", "source": "ours", "data": "none", "metric": "m", "regime": "r"}
    one = claims.Claim(id="p-1", expected=(1, None), **words)
    two = claims.Claim(id="p-2", expected=(1, None), parts=("A", "B"), **words)
    results = (claims.judge(one, first), claims.judge(two, {"A": second, "B": [math.inf, 3.0]}))
    run = {
        "command": "c",
        "scale": "quick",
        "seeds": 8,
        "tuned_on": None,
        "parameters": {"seeds": len(first)},
    }
    return claims.Ledger(paper="p", runs=(claims.Made(**run | fields),), claims=results)


def test_a_run_that_agrees():
    found = agreement(ledger(), ledger((1.50001, *FIRST[1:]), (0.500001, None)))
    told = "10 of 12 numbers equal, 2 equal up to rounding, none different; outcomes that change: none of 3"
    assert str(found) == told
    assert not found.differences


def test_fewer_seeds_are_compared_with_the_first_ones():
    assert str(agreement(ledger(), ledger(FIRST[:3]))).startswith("7 of 7 numbers equal")
    found = agreement(ledger(), ledger((1.5, 0.5, 1.5)))
    assert str(found).endswith("1 different; outcomes that change: 1 of 3")
    assert [str(each) for each in (*found.changed, *found.differences)] == [
        "p p-1: published holds, here undecided",  # with the other published seeds
        "p p-1, seed 1: published 2.5, here 0.5",
    ]
    none = agreement(ledger(), ledger((1.5, 1.6)))
    assert str(none).endswith("1 different; outcomes that change: none of 3")


def test_sums():
    found = agreement(ledger(), ledger((1.5, 0.5)))
    twice = total([found, agreement(ledger(), ledger())])
    told = "17 of 18 numbers equal, 0 equal up to rounding, 1 different; outcomes that change: 1 of 6"
    assert str(twice) == told
    assert (twice.changed, twice.differences) == (found.changed, found.differences)


def test_a_number_that_is_lost_is_told_and_a_claim_that_is_new_is_not_counted():
    found = agreement(ledger(second=(0.5, 0.7)), ledger(second=(0.5, None)))
    assert str(found.differences[0]) == "p p-2, A, seed 1: published 0.7, here nothing"
    less = ledger().model_copy(update={"claims": ledger().claims[:1]})
    for published, here in ((ledger(), less), (less, ledger())):
        assert str(agreement(published, here)).startswith("8 of 8 numbers equal")


@pytest.mark.parametrize("other", [{"scale": "full"}, {"parameters": {"seeds": 8, "workers": 4}}])
def test_other_runs_are_not_compared(other):
    assert agreement(ledger(), ledger(**other)) is None
    assert agreement(ledger(), ledger(parameters={"seeds": 3})) is not None
