"""The rule from numbers to verdicts, and a ledger that survives being written and read."""

import json
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlcore.reproduce import claims

ANY = st.one_of(st.none(), st.just(math.inf), st.just(math.nan), st.floats(-1e6, 1e6))


def claim(expected=(1.0, None), **fields):
    words = {
        "statement": "A is faster than B",
        "source": "ours",
        "metric": "time of B / time of A",
        "unit": "x",
    }
    return claims.Claim(id="p-1", paper="p", expected=expected, **words, **fields)


def ledger(*results):
    run = {"command": "python3 paper_repro.py p", "scale": "quick", "seeds": 3, "parameters": {"seeds": 3}}
    machine = {"versions": claims.versions(), "hardware": claims.hardware()}
    return claims.Ledger(paper="p", **run, **machine, claims=results)


@pytest.mark.parametrize(
    ("samples", "expected", "verdict"),
    [
        ([1.2, 1.3, 1.4], (1.0, None), "reproduced"),
        ([0.7, 0.8, 0.9], (1.0, None), "not reproduced"),
        ([0.9, 1.1, 1.2], (1.0, None), "partly"),
        ([2.0], (1.0, 2.0), "reproduced"),
        ([2.0, 2.0, 2.0], (None, 1.9), "not reproduced"),
        ([math.inf] * 3, (1.0, None), "reproduced"),
        ([math.inf] * 3, (1.0, 9.0), "not reproduced"),
        ([1.1, math.inf, math.inf], (1.0, None), "reproduced"),
        ([1.1, math.inf, math.inf], (1.0, 9.0), "partly"),
        ([None, math.nan], (1.0, None), "not run"),
        ([math.nan, math.nan, 2.0], (1.0, None), "partly"),
        ([2.0, None, 2.0], (1.0, None), "partly"),
        ([0.5, None, 0.5], (1.0, None), "not reproduced"),
        ([], (1.0, None), "not run"),
        (None, (1.0, None), "not run"),
    ],
)
def test_verdict(samples, expected, verdict):
    assert claims.judge(claim(expected), samples).verdict == verdict


def test_interval_holds_the_median_and_narrows_with_seeds():
    few = claims.judge(claim(), [1.0, 1.1, 1.2, 1.3, 1.4])
    many = claims.judge(claim(), [1.0, 1.1, 1.2, 1.3, 1.4] * 20)
    assert few.measured == many.measured == 1.2
    assert few.interval[0] < many.interval[0] <= 1.2 <= many.interval[1] < few.interval[1]


@settings(max_examples=25, deadline=None)
@given(st.lists(ANY, max_size=7))
def test_any_samples_survive_the_file(tmp_path_factory, samples):
    path = tmp_path_factory.mktemp("ledger") / "claims.json"
    result = claims.judge(claim((1.0, 5.0)), samples)
    if result.interval:
        assert result.interval[0] <= result.measured <= result.interval[1]
    claims.write(path, ledger(result))
    json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON has no NaN and no Infinity
    assert claims.read(path).claims == (result,)
    assert claims.recheck(path, [claim((1.0, 5.0))]) == []
    first = path.read_bytes()
    claims.write(path, ledger(claims.judge(claim((1.0, 5.0)), samples)))
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


VERDICTS = st.sampled_from(["reproduced", "partly", "not reproduced", "not run"])


@given(st.lists(VERDICTS, min_size=1))
def test_parts_combine(verdicts):
    whole = claims.combine(verdicts)
    assert (whole == "reproduced") == (set(verdicts) == {"reproduced"})
    assert (whole == "not run") == (set(verdicts) == {"not run"})
    assert (whole == "not reproduced") == (
        not {"reproduced", "partly"} & set(verdicts) and whole != "not run"
    )


def test_a_claim_shows_its_weakest_part():
    several = claim(parts=("MF", "LDA", "Lasso"))
    result = claims.judge(several, {"MF": [2.0], "LDA": [1.5]})
    assert [part.verdict for part in result.parts] == ["reproduced", "reproduced", "not run"]
    assert (result.measured, result.interval, result.verdict) == (1.5, (1.5, 1.5), "partly")
    assert claims.judge(several, {"MF": [2.0], "LDA": [0.5], "Lasso": [3.0]}).measured == 0.5
    assert claims.judge(several, {}).verdict == "not run"


@pytest.mark.parametrize(
    ("parts", "samples", "message"),
    [
        ((), {"MF": [1.0]}, "samples of p-1: got ['MF'], allowed is a sequence"),
        (("MF",), [1.0], "samples of p-1: got [1.0], allowed is a mapping with the labels ['MF']"),
        (("MF",), {"mf": [1.0]}, "samples of p-1: got ['mf'], allowed"),
        ((), ["fast"], "samples of p-1: got 'fast', allowed is a number"),
        ((), [-math.inf], "samples of p-1: got -inf, allowed is a number"),
    ],
)
def test_wrong_samples(parts, samples, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        claims.judge(claim(parts=parts), samples)


@pytest.mark.parametrize("expected", [(None, None), (2.0, 1.0)])
def test_wrong_range(expected):
    with pytest.raises(ValueError, match="expected: got"):
        claim(expected)


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda row: row.update(verdict="partly"), "verdict is 'partly', but its samples give 'reproduced'"),
        (lambda row: row.update(expected=[9.0, None]), "its samples give 'not reproduced'"),
        (lambda row: row.update(expected=[0.5, None]), "p-1: missing, or differs from its declaration"),
        (lambda row: row.update(measured=3.0), "p-1: measured is 3.0, but its samples give 1.3"),
        (
            lambda row: row.update(interval=[0.5, 0.9], verdict="not reproduced"),
            "p-1: interval is (0.5, 0.9), but its samples give (1.2, 1.4)",
        ),
        (lambda row: row.update(samples=[]), "p-1: verdict is 'reproduced', but its samples give 'not run'"),
        (lambda row: row.update(samples=[None] * 3), "its samples give 'not run'"),
        (lambda row: row.update(samples=[1.2, 1.3, None, 1.4]), "its samples give 'partly'"),
        (lambda row: row.update(id="p-2"), "p-2: not declared"),
    ],
)
def test_recheck_finds_what_was_edited(tmp_path, edit, fault):
    path = tmp_path / "claims.json"
    claims.write(path, ledger(claims.judge(claim(), [1.2, 1.3, 1.4])))
    stored = json.loads(path.read_text())
    edit(stored["claims"][0])
    path.write_text(json.dumps(stored))
    assert any(fault in line for line in claims.recheck(path, [claim()]))


def test_recheck_finds_an_edited_summary(tmp_path):
    path = tmp_path / "claims.json"
    claims.write(path, ledger(claims.judge(claim(parts=("MF", "LDA")), {"MF": [2.0], "LDA": [1.5]})))
    path.write_text(path.read_text().replace('"measured": 1.5', '"measured": 2.0', 1))
    assert "its parts give" in claims.recheck(path)[0]


@pytest.mark.parametrize("text", ["", "{}", '{"paper": NaN}', "[1]"])
def test_a_file_that_is_no_ledger(tmp_path, text):
    path = tmp_path / "claims.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"claims\.json: .+"):
        claims.read(path)


def test_shown_to_people():
    result = claims.judge(claim(parts=("MF", "LDA")), {"MF": [2.0, math.inf], "LDA": [1.5]})
    frame = claims.frame([result])
    assert frame.loc[("p-1", ""), "verdict"] == "reproduced"
    assert frame.loc[("p-1", "MF"), "interval"] == "[2, ∞]"
    assert claims.table([result]).row_count == 3
    lines = claims.markdown([result, claims.judge(claim(), [])]).splitlines()
    assert lines[2] == "| p-1 | A is faster than B | >= 1x | weakest part: 1.5x (1.5 to 1.5) | reproduced |"
    assert lines[3] == "| p-1 | A is faster than B | >= 1x | - | not run |"
