"""Whether a run gives what was published: the rule for numbers, for ledgers, for pictures and tables."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlcore.reproduce import claims, published
from dmlcore.reproduce.agreement import RELATIVE, agreement, same, total, unchanged

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
    assert unchanged(ledger(), ledger((1.50001, 2.5)))


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
    assert not unchanged(less, ledger())


@pytest.mark.parametrize("other", [{"scale": "full"}, {"seeds": 3}, {"parameters": {"workers": 4}}])
def test_other_parameters_are_not_compared(other):
    assert agreement(ledger(), ledger(**other)) is None
    assert not unchanged(ledger(), ledger(**other))


def test_other_words_are_a_change():
    said = ledger()
    reworded = said.model_copy(
        update={"claims": (said.claims[0].model_copy(update={"statement": "thus"}), said.claims[1])}
    )
    assert not agreement(said, reworded).differences
    assert not unchanged(said, reworded)


@pytest.fixture
def folders(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    return tmp_path / "old", tmp_path / "new"


def picture(path, shift=0.0, text="7", size=5.0, band=0.02, **metadata):
    """A line, a mark and a letter, on an axis from 0 to 1."""
    figure, ax = plt.subplots(figsize=(size, 3), dpi=100)
    x = np.linspace(0, 1, 50)
    ax.plot(x, x**2 * (1 + shift))
    ax.fill_between(x, 0.5 - band, 0.5 + band * (1 + shift), color="grey", alpha=0.12, linewidth=0)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.text(0.2, 0.7, text)
    figure.savefig(path, metadata=metadata)
    plt.close(figure)


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ({"Software": "another"}, True),  # other bytes, the same pixels
        ({"shift": 1e-5}, True),
        ({"shift": 1e-4}, True),
        ({"band": 0.06}, False),  # three times as wide, though no pixel differs by more than 15 levels
        ({"band": 0.03}, False),
        ({"shift": 0.05}, False),
        ({"text": "1"}, False),
        ({"size": 5.1}, False),
    ],
)
def test_a_picture_is_kept_by_what_it_shows(folders, other, alike):
    old, new = folders
    picture(old / "a.png")
    picture(new / "a.png", **other)
    assert (old / "a.png").read_bytes() != (new / "a.png").read_bytes()
    assert published.kept(new, old) == ({"a.png"} if alike else set())


def test_a_damaged_picture_is_replaced(folders):
    old, new = folders
    picture(new / "a.png")
    (old / "a.png").write_bytes((new / "a.png").read_bytes()[:200])
    assert published.kept(new, old) == set()


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("method,time\nSSP,1.00001\n", True),
        ("method,time\nSSP,1.001\n", False),
        ("method,time\nBSP,1.0\n", False),
        ("method,time\nSSP,1.0\nBSP,1.0\n", False),
        ("method,time\nSSP\n", False),
    ],
)
def test_a_table_is_kept_by_its_cells(folders, text, alike):
    old, new = folders
    (old / "a.csv").write_text("method,time\nSSP,1.0\n")
    (new / "a.csv").write_text(text)
    assert published.kept(new, old) == ({"a.csv"} if alike else set())


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"time": [0.0, 1.00001, np.inf, np.nan]}, True),  # other bytes
        ({"time": [0.0, 1.001, np.inf, np.nan]}, False),
        ({"time": [0.0, 1.0, np.inf, 1.0]}, False),  # a number where none was
        ({"time": [0.0, 1.0, 9.0, np.nan]}, False),
        ({"seed": [0, 1, 2, 4]}, False),
        ({"method": ["SSP", "SSP", "BSP", "ASP"]}, False),
        ({"method": ["SSP", "SSP", "BSP", None]}, False),
        ({"bytes": [1, 1, 1, 1]}, False),  # another column
        ({"seed": [0.0, 1.0, 2.0, 3.0]}, False),  # of another kind
    ],
)
def test_histories_are_kept_by_their_numbers(folders, change, alike):
    """runs.parquet of full scale, whose last digit may depend on the machine."""
    old, new = folders
    frame = {"method": ["SSP", "SSP", "BSP", "BSP"], "seed": [0, 1, 2, 3], "time": [0.0, 1.0, np.inf, np.nan]}
    pd.DataFrame(frame).to_parquet(old / "runs.parquet")
    pd.DataFrame(frame | change).to_parquet(new / "runs.parquet")
    assert (old / "runs.parquet").read_bytes() != (new / "runs.parquet").read_bytes()
    assert published.kept(new, old) == ({"runs.parquet"} if alike else set())


@pytest.mark.parametrize("rows", [0, 3])
def test_histories_of_other_lengths_are_replaced_and_damaged_ones_too(folders, rows):
    old, new = folders
    frame = pd.DataFrame({"time": [0.0, 1.0]})
    frame.to_parquet(new / "runs.parquet")
    pd.DataFrame({"time": [0.0] * rows}).to_parquet(old / "runs.parquet")
    assert published.kept(new, old) == set()
    (old / "runs.parquet").write_bytes((new / "runs.parquet").read_bytes()[:100])
    assert published.kept(new, old) == set()


def test_numbers_and_pictures_are_of_one_run(folders):
    """Where the ledger differs, every file is: a new ledger beside old pictures would mix two runs."""
    old, new = folders
    for folder, shift in ((old, 0.0), (new, 1e-5)):
        picture(folder / "a.png", shift=shift)
        (folder / "a.txt").write_text("the same")
    claims.write(old / "claims.json", ledger())
    claims.write(new / "claims.json", ledger((1.50001, 2.5)))
    assert published.kept(new, old) == {"claims.json", "a.png", "a.txt"}
    claims.write(new / "claims.json", ledger((1.6, 2.5)))
    assert published.kept(new, old) == set()
    (old / "claims.json").unlink()
    assert published.kept(new, old) == set()
