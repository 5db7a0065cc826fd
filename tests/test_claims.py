"""The rule from numbers to verdicts, and a ledger that survives being written and read."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlcore.reproduce import claims
from dmlcore.reproduce.claims import show

ANY = st.one_of(st.none(), st.just(math.inf), st.just(math.nan), st.floats(-1e6, 1e6))


def claim(expected=(1.0, None), **fields):
    words = {
        "id": "p-1",
        "paper": "p",
        "statement": "A is faster than B",
        "source": "ours",
        "data": "none",
        "metric": "time of B / time of A",
        "unit": "x",
    }
    return claims.Claim(expected=expected, **words | fields)


def ledger(*results):
    run = {"command": "python3 paper_repro.py p", "scale": "quick", "seeds": 3, "parameters": {"seeds": 3}}
    return claims.Ledger(paper="p", **run, tuned_on=(1000,), claims=results)


@pytest.mark.parametrize(
    ("samples", "expected", "verdict"),
    [
        ([1.2, 1.3, 1.4], (1.0, None), "reproduced"),
        ([0.7, 0.8, 0.9], (1.0, None), "not reproduced"),
        ([0.9, 1.1, 1.2], (1.0, None), "mixed"),
        ([0.9, 0.9, 0.9, 0.9, 1.0], (1.0, None), "mixed"),
        ([2.0, 1.0], (1.0, 2.0), "reproduced"),
        ([2.0], (1.0, 2.0), "mixed"),
        ([2.1], (1.0, 2.0), "not reproduced"),
        ([2.0, 2.0, 2.0], (None, 1.9), "not reproduced"),
        ([math.inf] * 3, (1.0, None), "reproduced"),
        ([math.inf] * 3, (1.0, 9.0), "not reproduced"),
        ([1.1, math.inf, math.inf], (1.0, None), "reproduced"),
        ([1.1, math.inf, math.inf], (1.0, 9.0), "mixed"),
        ([None, math.nan], (1.0, None), "not run"),
        ([math.nan, math.nan, 2.0], (1.0, None), "mixed"),
        ([2.0, None, 2.0], (1.0, None), "mixed"),
        ([0.5, 2.0, 3.0], (1.0, 1.5), "not reproduced"),
        ([0.5, None, 0.5], (1.0, None), "not reproduced"),
        ([], (1.0, None), "not run"),
        (None, (1.0, None), "not run"),
    ],
)
def test_verdict(samples, expected, verdict):
    assert claims.judge(claim(expected), samples).verdict == verdict


def test_one_sample_is_enough_where_no_seed_matters():
    formula = claim(source="theory", deterministic=True)
    verdicts = [claims.judge(formula, samples).verdict for samples in ([1.2], [0.8], [1.2, None], [])]
    assert verdicts == ["reproduced", "not reproduced", "mixed", "not run"]
    for source in ("abstract", "ours"):
        with pytest.raises(
            ValueError, match=r"deterministic: expected False .for a claim with source.*, got True"
        ):
            claim(source=source, deterministic=True)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(-1e6, 1e6))
def test_the_verdict_counts_seeds(samples, low):
    """Every, some, none: by the definition, and the spread holds every sample and the median."""
    result = claims.judge(claim((low, None)), samples)
    kept = [value >= low for value in result.samples]
    assert (result.verdict == "reproduced") == (all(kept) and len(kept) > 1)
    assert (result.verdict == "not reproduced") == (not any(kept))
    assert result.spread == (min(result.samples), max(result.samples))
    assert result.spread[0] <= result.measured <= result.spread[1]


@pytest.mark.parametrize(
    ("about", "measured_on", "verdict"),
    [
        ("any", "digits", "reproduced"),
        ("digits", "digits", "reproduced"),
        ("MNIST", "digits", "not run"),
        ("none", None, "reproduced"),
    ],
)
@pytest.mark.parametrize("parts", [(), ("MF",)])
def test_other_data_stand_in_for_nothing(tmp_path, about, measured_on, verdict, parts):
    """Samples are kept with what they were measured on, and judged where the claim is about these data."""
    samples = {"MF": [1.2, 1.3]} if parts else [1.2, 1.3]
    declared = claim(data=about, parts=parts)
    result = claims.judge(declared, samples, measured_on)
    assert result.verdict == verdict
    assert result.measured_on == (measured_on or "none")
    assert (result.parts or [result])[0].samples == (1.2, 1.3)
    assert claims.remark(result) == ("measured on digits, not on MNIST" if verdict == "not run" else "")
    claims.write(tmp_path / "claims.json", ledger(result))
    assert claims.recheck(tmp_path / "claims.json", [declared]) == []


def test_what_parts_were_measured_on_is_what_was_run(tmp_path):
    """A data set that was missing is not named, and one that the claim is not about leaves it not run."""
    declared = claim(data="MovieLens, MNIST, a corpus", parts=("MF", "LDA", "images"))
    data = {"MF": "MovieLens", "LDA": "a corpus", "images": "MNIST"}
    samples = {"MF": [1.2, 1.3], "LDA": [1.2, 1.3], "images": [1.2, 1.3]}
    result = claims.judge(declared, samples, data)
    assert (result.measured_on, result.verdict) == ("MovieLens, a corpus, MNIST", "reproduced")
    for missing in ({}, {"LDA": []}, {"LDA": [None, None]}):
        result = claims.judge(declared, {"MF": samples["MF"], "images": samples["images"]} | missing, data)
        assert (result.measured_on, result.verdict) == ("MovieLens, MNIST", "mixed")
        assert claims.remark(result) == "2 of 3 parts run"
        claims.write(tmp_path / "claims.json", ledger(result))
        assert claims.recheck(tmp_path / "claims.json", [declared]) == []
    result = claims.judge(declared, samples, data | {"images": "digits"})
    assert (result.measured_on, result.verdict) == ("MovieLens, a corpus, digits", "not run")
    assert claims.judge(declared, {}, data).measured_on is None
    with pytest.raises(ValueError, match=r"part of p-1 in the data: expected .*, got 'mf'"):
        claims.judge(declared, samples, {"mf": "MovieLens"})
    with pytest.raises(ValueError, match=r"data of p-1, LDA: expected the name.*, got None"):
        claims.judge(declared, samples, {"MF": "MovieLens"})
    with pytest.raises(ValueError, match=r"expected one name \(this claim declares no parts\), got"):
        claims.judge(claim(), [1.0], {"MF": "MovieLens"})


def test_data_must_be_named():
    with pytest.raises(ValueError, match=r"data of p-1: expected the name of the data set.*, got None"):
        claims.judge(claim(data="any"), [1.0])
    assert claims.judge(claim(data="any"), []).measured_on is None


@settings(max_examples=25)
@given(st.lists(ANY, max_size=7))
def test_any_samples_survive_the_file(tmp_path_factory, samples):
    path = tmp_path_factory.mktemp("ledger") / "claims.json"
    result = claims.judge(claim((1.0, 5.0)), samples)
    if result.spread:
        assert result.spread[0] <= result.measured <= result.spread[1]
    claims.write(path, ledger(result))
    json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON has no NaN and no Infinity
    assert claims.read(path).claims == (result,)
    assert claims.recheck(path, [claim((1.0, 5.0))]) == []
    first = path.read_bytes()
    claims.write(path, ledger(claims.judge(claim((1.0, 5.0)), samples)))
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


VERDICTS = st.sampled_from(["reproduced", "mixed", "not reproduced", "not run"])


@given(st.lists(VERDICTS, min_size=1))
def test_parts_combine(verdicts):
    whole = claims.combine(verdicts)
    run = [verdict for verdict in verdicts if verdict != "not run"]
    assert (whole == "not run") == (not run)
    assert (whole == "reproduced") == (run == verdicts and set(run) == {"reproduced"})
    assert (whole == "not reproduced") == (bool(run) and not {"reproduced", "mixed"} & set(run))


def test_a_claim_shows_in_how_many_settings_it_holds():
    several = claim(parts=("MF", "LDA", "Lasso"))
    result = claims.judge(several, {"MF": [2.0, 2.0], "LDA": [1.5, 1.7]})
    assert [part.verdict for part in result.parts] == ["reproduced", "reproduced", "not run"]
    assert (result.measured, result.spread, result.verdict) == (None, (1.6, 2.0), "mixed")
    assert show.measured(result) == "2 of 3 settings"
    result = claims.judge(several, {"MF": [2.0] * 2, "LDA": [0.5] * 2, "Lasso": [math.inf] * 2})
    assert (result.spread, show.measured(result)) == ((0.5, math.inf), "2 of 3 settings")
    assert claims.remark(result) == ""
    result = claims.judge(several, {"MF": [0.5, 0.6], "LDA": [0.7, 0.8]})
    assert show.verdict(result) == "not reproduced (2 of 3 parts run)"
    result = claims.judge(several, {"MF": [2.0, 2.0]})
    assert show.verdict(result) == "mixed (1 of 3 parts run)"
    assert (claims.judge(several, {}).verdict, show.measured(claims.judge(several, {}))) == ("not run", "-")


@pytest.mark.parametrize(
    ("samples", "remark"),
    [
        ([1.2, 1.3], ""),
        ([0.5, 1.3, 1.4], "2 of 3 seeds"),
        ([1.2], "one seed"),
        ([1.2, None, 1.3], "2 of 3 seeds measured"),
        ([0.5], ""),
        ([], ""),
    ],
)
def test_a_mixed_verdict_says_why(samples, remark):
    assert claims.remark(claims.judge(claim(), samples)) == remark
    result = claims.judge(claim(parts=("MF",)), {"MF": samples})
    assert claims.remark(result, result.parts[0]) == remark


def test_tallies_are_by_source_and_count_an_experiment_once():
    made = [
        claims.judge(claim(id="a", source="ours"), [1.2, 1.3]),
        claims.judge(claim(id="b", source="abstract"), [0.2, 1.3]),
        claims.judge(claim(id="c", source="abstract"), [0.2, 0.3]),
        claims.judge(claim(id="d", source="ours", metric="the same, tuned"), [0.2, 0.3]),
        claims.judge(claim(id="e", source="ours"), []),
        claims.judge(claim(id="f", source="ours"), []),
        claims.judge(claim(id="g", source="theory", deterministic=True), [2.0]),
    ]
    assert claims.repeats(made) == {"d": "c"}
    assert claims.told(made) == [
        "2 from the papers' abstracts: 1 mixed, 1 not reproduced",
        "3 our own: 1 reproduced, 2 not run",
        "1 against theory: 1 reproduced",
    ]


def test_one_verdict_per_claim_whatever_the_scale():
    quick = ledger(*(claims.judge(claim(id=name), [1.2, 1.3]) for name in "abc"))
    some = [claims.judge(claim(id="a"), [0.2, 0.3]), claims.judge(claim(id="b"), [])]
    full = quick.model_copy(update={"scale": "full", "claims": tuple(some)})
    other = quick.model_copy(update={"paper": "q", "claims": quick.claims[:1]})
    for ledgers in ([quick, full, other], [full, quick, other]):
        found = claims.standing(ledgers)
        assert [result.id for result in found] == ["a", "b", "c", "a"]
        verdicts = ["not reproduced", "reproduced", "reproduced", "reproduced"]
        assert [result.verdict for result in found] == verdicts


def test_a_claim_that_declares_so_repeats_one_with_another_range(tmp_path):
    first = claims.judge(claim(id="a"), [0.5, 2.0])
    again = claim((0.4, None), id="b", repeats="a")
    assert claims.repeats([first, claims.judge(again, [0.5, 2.0])]) == {"b": "a"}
    assert claims.repeats([first, claims.judge(again, [0.5, 3.0])]) == {}  # at another scale they differ
    assert claims.repeats([first, claims.judge(claim((0.4, None), id="b"), [0.5, 2.0])]) == {}
    claims.write(tmp_path / "claims.json", ledger(first, claims.judge(again, [0.5, 2.0])))
    assert claims.read(tmp_path / "claims.json").claims[1].repeats == "a"
    assert (tmp_path / "claims.json").read_text().count("repeats") == 1
    assert claims.recheck(tmp_path / "claims.json", [claim(id="a"), again]) == []


def test_a_claim_that_divides_another_by_a_constant_repeats_it_where_it_says_so():
    parts = ("A", "B")
    loads = {"A": [1.23457, 2.34568, math.inf], "B": [0.0, 1.5, None]}
    first = claims.judge(claim(id="a", parts=parts), loads)
    divided = {"A": [value / 1.3 for value in loads["A"]], "B": [0.0, 3.0, None]}
    for samples, repeats, found in (
        (divided, "a", {"b": "a"}),
        (divided, "", {}),
        (divided | {"A": [1.0, 2.34568, math.inf]}, "a", {}),
        (divided | {"A": [value / 1.3 for value in loads["A"][:2]]}, "a", {}),
        (divided | {"B": [0.5, 3.0, None]}, "a", {}),
    ):
        again = claims.judge(claim(id="b", parts=parts, repeats=repeats), samples)
        assert claims.repeats([first, again]) == found


@pytest.mark.parametrize(
    ("parts", "samples", "message"),
    [
        ((), {"MF": [1.0]}, r"samples of p-1: expected a sequence.*, got \['MF'\]"),
        (("MF",), [1.0], r"samples of p-1: expected a mapping with the labels \['MF'\].*, got \[1\.0\]"),
        (("MF",), {"mf": [1.0]}, r"samples of p-1: expected .*, got \['mf'\]"),
        ((), ["fast"], "samples of p-1: expected a number.*, got 'fast'"),
        ((), [-math.inf], "samples of p-1: expected a number.*, got -inf"),
    ],
)
def test_wrong_samples(parts, samples, message):
    with pytest.raises(ValueError, match=message):
        claims.judge(claim(parts=parts), samples)


@pytest.mark.parametrize("expected", [(None, None), (2.0, 1.0)])
def test_wrong_range(expected):
    with pytest.raises(ValueError, match="expected: expected"):
        claim(expected)


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda row: row.update(verdict="mixed"), "verdict is 'mixed', but its samples give 'reproduced'"),
        (lambda row: row.update(expected=[9.0, None]), "its samples give 'not reproduced'"),
        (lambda row: row.update(expected=[0.5, None]), "p-1: missing, or differs from its declaration"),
        (lambda row: row.update(measured=3.0), "p-1: measured is 3.0, but its samples give 1.3"),
        (
            lambda row: row.update(spread=[0.5, 0.9], verdict="not reproduced"),
            "p-1: spread is (0.5, 0.9), but its samples give (1.2, 1.4)",
        ),
        (lambda row: row.update(samples=[]), "p-1: verdict is 'reproduced', but its samples give 'not run'"),
        (lambda row: row.update(samples=[None] * 3), "its samples give 'not run'"),
        (lambda row: row.update(samples=[1.2, 1.3, None, 1.4]), "its samples give 'mixed'"),
        (lambda row: row.update(data="MNIST", measured_on="digits"), "its samples give 'not run'"),
        (lambda row: row.update(source="abstract"), "p-1: missing, or differs from its declaration"),
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
    text = path.read_text().replace("\n        1.5,\n        2.0\n", "\n        1.6,\n        2.0\n", 1)
    assert text != path.read_text()
    path.write_text(text)
    assert "its parts give" in claims.recheck(path)[0]


@pytest.mark.parametrize("text", ["", "{}", '{"paper": NaN}', "[1]", '{"versions": {}, "claims": 1}'])
def test_a_file_that_is_no_ledger(tmp_path, text):
    path = tmp_path / "claims.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"claims\.json: .+"):
        claims.read(path)


def test_shown_to_people():
    result = claims.judge(claim(parts=("MF", "LDA")), {"MF": [2.0, math.inf], "LDA": [1.5, 0.5]})
    frame = claims.frame([result], {"p-1": "The paper says so."})
    assert frame.loc[("p-1", ""), "verdict"] == "mixed"
    assert frame.loc[("p-1", ""), "finding"] == "The paper says so."
    assert frame.loc[("p-1", "MF"), "spread"] == "2 to ∞x"
    assert frame.loc[("p-1", ""), "spread"] == "medians 1 to ∞x"
    assert frame.loc[("p-1", "LDA"), "verdict"] == "mixed (1 of 2 seeds)"
    assert claims.table([result]).row_count == 3
    several = [result, claims.judge(claim(), [2.0, 3.0]), claims.judge(claim(), [])]
    lines = claims.markdown(several).splitlines()
    stated = "| p-1 | A is faster than B | >= 1x"
    assert lines[2] == f"{stated} | 1 of 2 settings (medians 1 to ∞x) | mixed |"
    assert lines[3] == f"{stated} | 2.5x (2 to 3x) | reproduced |"
    assert lines[4] == f"{stated} | - | not run |"
