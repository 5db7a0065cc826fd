"""The rule from numbers to verdicts, and a ledger that survives being written and read."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlcore.reproduce import claims
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.papers import PAPERS
from dmlcore.trace.metrics import decide

ANY = st.one_of(st.none(), st.just(math.inf), st.just(math.nan), st.floats(-1e6, 1e6))


def claim(expected=(1.0, None), **fields):
    words = {
        "id": "p-1",
        "paper": "p",
        "statement": "A is faster than B",
        "source": "ours",
        "data": "none",
        "metric": "time of B / time of A",
        "regime": "two clusters; ours",
        "unit": "x",
    }
    return claims.Claim(expected=expected, **words | fields)


def run(**fields):
    given = {"command": "python3 paper_repro.py p", "scale": "quick", "seeds": 8, "tuned_on": (1000,)}
    return claims.Made(**given | {"parameters": {"seeds": 8, "workers": 4}} | fields)


def ledger(*results, **fields):
    return claims.Ledger(paper="p", runs=(run(**fields),), claims=results)


MOST = [1.1] * 7  # seven seeds


@pytest.mark.parametrize(
    ("samples", "expected", "verdict"),
    [
        ([1.2, *MOST], (1.0, None), "reproduced"),
        ([0.9] * 8, (1.0, None), "not reproduced"),
        ([0.9, *MOST], (1.0, None), "undecided"),
        ([0.9, *MOST, *MOST, *MOST], (1.0, None), "reproduced"),  # of 22 the fifth from either end
        ([1.0] * 8, (1.0, 2.0), "reproduced"),
        (MOST, (1.0, 2.0), "undecided"),
        ([2.1] * 7, (1.0, 2.0), "undecided"),
        ([2.0] * 8, (None, 1.9), "not reproduced"),
        ([math.inf] * 8, (1.0, None), "reproduced"),
        ([math.inf] * 8, (1.0, 9.0), "not reproduced"),
        ([math.inf, *MOST], (1.0, None), "reproduced"),
        ([math.inf, *MOST], (1.0, 9.0), "undecided"),
        ([None, math.nan], (1.0, None), "not run"),
        ([None, 1.2, *MOST], (1.0, None), "reproduced"),
        ([None, *MOST], (1.0, None), "undecided"),
        ([], (1.0, None), "not run"),
        (None, (1.0, None), "not run"),
    ],
)
def test_verdict(samples, expected, verdict):
    assert claims.judge(claim(expected), samples).verdict == verdict


def test_a_guarantee_holds_on_every_seed_or_fails():
    formula = claim(source="theory", always=True)
    for samples, verdict in (
        ([1.2], "reproduced"),
        ([0.8], "not reproduced"),
        ([0.9] + [1.1] * 31, "not reproduced"),
        ([1.2, None], "undecided"),
        ([0.8, None], "not reproduced"),
        ([], "not run"),
    ):
        result = claims.judge(formula, samples)
        assert result.verdict == verdict
        assert not samples or result.parts[0].interval == (
            min(x for x in samples if x),
            max(x for x in samples if x),
        )
    for source in ("abstract", "ours"):
        with pytest.raises(ValueError, match=r"always: expected False .for a claim with source.*, got True"):
            claim(source=source, always=True)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(-1e6, 1e6))
def test_the_outcome_is_that_of_the_rule(samples, low):
    """That of `decide`, on the samples as the file has them; the interval holds the median."""
    (part,) = claims.judge(claim((low, None)), samples).parts
    found = decide(part.samples, low=low)
    assert part.outcome == found.outcome
    assert (part.interval is None) == (len(samples) < 8)
    if part.interval:
        assert part.interval[0] <= part.measured <= part.interval[1]
        assert (part.outcome == "holds") == (part.interval[0] >= low)
        assert (part.outcome == "fails") == (part.interval[1] < low)


@pytest.mark.parametrize(
    ("about", "measured_on", "verdict"),
    [
        ("any", "digits", "reproduced"),
        ("digits", "digits", "reproduced"),
        ("MNIST", "digits", "not run"),
        ("MNIST, digits", "digits", "reproduced"),
        ("MNIST, CIFAR-10, digits", "digits, MNIST", "reproduced"),
        ("none", None, "reproduced"),
    ],
)
@pytest.mark.parametrize("parts", [("",), ("MF",)])
def test_other_data_stand_in_for_nothing(tmp_path, about, measured_on, verdict, parts):
    """A claim about other data than the samples was not run."""
    samples = {"MF": [1.2] * 8} if parts == ("MF",) else [1.2] * 8
    declared = claim(data=about, parts=parts)
    result = claims.judge(declared, samples, measured_on)
    assert result.verdict == verdict
    assert result.measured_on == ("" if verdict == "not run" else measured_on or "")
    assert result.parts[0].samples == (() if verdict == "not run" else (1.2,) * 8)
    claims.write(tmp_path / "claims.json", ledger(result))
    assert claims.recheck(tmp_path / "claims.json", [declared]) == []


def test_the_papers_claims_name_data_sets():
    """Samples on other data are left out, so a name that no measurement has would leave out all."""
    named = {name for paper in PAPERS.values() for each in paper.claims for name in each.data.split(", ")}
    assert named == {"any", "none", "digits", "MNIST", "CIFAR-10", "straggler jobs"}


def test_what_settings_were_measured_on_is_what_was_run(tmp_path):
    """A data set that was missing is not named; samples that the claim is not about are left out."""
    declared = claim(data="MovieLens, MNIST, a corpus", parts=("MF", "LDA", "images"))
    data = {"MF": "MovieLens", "LDA": "a corpus", "images": "MNIST"}
    samples = dict.fromkeys(data, [1.2] * 8)
    result = claims.judge(declared, samples, data)
    assert (result.measured_on, result.verdict) == ("MovieLens, a corpus, MNIST", "reproduced")
    for missing in ({}, {"LDA": []}, {"LDA": [None, None]}):
        result = claims.judge(declared, {"MF": samples["MF"], "images": samples["images"]} | missing, data)
        assert (result.measured_on, result.verdict) == ("MovieLens, MNIST", "in part")
        assert claims.counted(result) == "holds in 2 of 3 settings, not run in 1"
        claims.write(tmp_path / "claims.json", ledger(result))
        assert claims.recheck(tmp_path / "claims.json", [declared]) == []
    result = claims.judge(declared, samples, data | {"images": "digits"})
    assert (result.measured_on, result.parts[2].outcome) == ("MovieLens, a corpus", "not run")
    assert claims.judge(declared, {}, data).measured_on == ""
    with pytest.raises(ValueError, match=r"part of p-1 in the data: expected .*, got 'mf'"):
        claims.judge(declared, samples, {"mf": "MovieLens"})
    with pytest.raises(ValueError, match=r"data of p-1, LDA: expected the name.*, got None"):
        claims.judge(declared, samples, {"MF": "MovieLens"})
    with pytest.raises(ValueError, match=r"expected one name \(this claim declares no parts\), got"):
        claims.judge(claim(), [1.0], {"MF": "MovieLens"})


def test_data_must_be_named():
    with pytest.raises(ValueError, match=r"data of p-1: expected the name of the data set.*, got None"):
        claims.judge(claim(data="any"), [1.0])
    assert claims.judge(claim(data="any"), []).verdict == "not run"


@settings(max_examples=25)
@given(st.lists(ANY, max_size=12))
def test_any_samples_survive_the_file(tmp_path_factory, samples):
    path = tmp_path_factory.mktemp("ledger") / "claims.json"
    result = claims.judge(claim((1.0, 5.0)), samples)
    claims.write(path, ledger(result))
    json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON has no NaN and no Infinity
    assert claims.read(path).claims == (result,)
    assert claims.recheck(path, [claim((1.0, 5.0))]) == []
    first = path.read_bytes()
    claims.write(path, ledger(claims.judge(claim((1.0, 5.0)), samples)))
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


OUTCOMES = st.sampled_from(["holds", "fails", "undecided", "not run"])


@given(st.lists(OUTCOMES, min_size=1))
def test_settings_combine(outcomes):
    """The words of a claim: in all settings of its regime, in some, in none."""
    whole, there = claims.combine(outcomes), {*outcomes}
    assert (whole == "reproduced") == (there == {"holds"})
    assert (whole == "in part") == ("holds" in there and there != {"holds"})
    assert (whole == "not reproduced") == ("fails" in there and "holds" not in there)
    assert (whole == "undecided") == ("undecided" in there and not there & {"holds", "fails"})
    assert (whole == "not run") == (there == {"not run"})


def test_a_claim_shows_in_how_many_settings_it_holds():
    several = claim(parts=("MF", "LDA", "Lasso"))
    result = claims.judge(several, {"MF": [2.0] * 8, "LDA": [1.5, 1.7] * 4})
    assert [part.outcome for part in result.parts] == ["holds", "holds", "not run"]
    assert show.row(result).measured == "1.6 to 2x"
    assert show.row(result).verdict == "in part (holds in 2 of 3 settings, not run in 1)"
    result = claims.judge(several, {"MF": [2.0] * 8, "LDA": [0.5] * 8, "Lasso": [math.inf] * 8})
    assert show.row(result).measured == "0.5 to ∞x"
    assert show.row(result).verdict == "in part (holds in 2 of 3 settings, fails in 1)"
    result = claims.judge(several, {"MF": [0.5] * 8, "LDA": [0.7, 1.8] * 4})
    assert (
        show.row(result).verdict == "not reproduced (fails in 1 of 3 settings, undecided in 1, not run in 1)"
    )
    result = claims.judge(several, {})
    assert (show.row(result).verdict, show.row(result).measured) == (
        "not run (not run in 3 of 3 settings)",
        "-",
    )
    assert show.row(claims.judge(claim(), [1.2] * 8)).verdict == "reproduced"


@pytest.mark.parametrize(
    ("samples", "known"),
    [
        ([1.2, 1.3, *MOST], "1.1 to 1.3x, 9 seeds"),
        ([1.2, None], "1 of 2 seeds"),
        ([0.5, 1.5, 1.5], "3 seeds"),
        ([], ""),
    ],
)
def test_how_well_a_median_is_known(samples, known):
    assert show.row(claims.judge(claim(), samples)).interval == known
    result = claims.judge(claim(parts=("MF", "LDA")), {"MF": samples})
    assert (show.row(result).interval, show.row(result, result.parts[0]).interval) == ("", known)
    assert show.row(claims.judge(claim(source="theory", always=True), [1.2, 1.4])).interval == "1.2 to 1.4x"


def test_tallies_are_by_source_and_count_an_experiment_once():
    made = [
        claims.judge(claim(id="a", source="ours"), [1.2] * 8),
        claims.judge(claim(id="b", source="abstract"), [0.2, *MOST]),
        claims.judge(claim(id="c", source="abstract"), [0.2] * 8),
        claims.judge(claim(id="d", source="ours", metric="the same, tuned"), [0.2] * 8),
        claims.judge(claim(id="e", source="ours"), []),
        claims.judge(claim(id="f", source="ours"), []),
        claims.judge(claim(id="g", source="theory", always=True), [2.0]),
    ]
    assert claims.repeats(made) == {"d": "c"}
    assert claims.told(made) == [
        "2 from the papers' abstracts: 1 not reproduced, 1 undecided",
        "3 our own: 1 reproduced, 2 not run",
        "1 against theory: 1 reproduced",
        "6 settings: holds in 2, fails in 1, undecided in 1, not run in 2",
    ]


def merged(first, second, **options):
    """The ledger of two runs of a claim with the settings A and B, as (verdict, samples of A, of B, runs)."""
    declared = claim(parts=("A", "B"))
    old, new = (ledger(claims.judge(declared, samples), **about) for samples, about in (first, second))
    found = claims.merge(old, new, **options)
    (result,) = found.claims
    return result.verdict, *(part.samples[:1] for part in result.parts), [each.scale for each in found.runs]


def test_a_ledger_keeps_what_a_new_run_does_not_measure_better():
    full, more = {"scale": "full"}, {"parameters": {"seeds": 8, "workers": 5}}
    a, b, few = {"A": [1.2] * 8}, {"B": [1.3] * 8}, {"A": [1.4] * 7, "B": [1.4] * 8}
    assert merged((a, full), (b, {})) == ("reproduced", (1.2,), (1.3,), ["full", "quick"])
    assert merged((a, full), (few, {})) == ("reproduced", (1.2,), (1.4,), ["full", "quick"])
    assert merged((a, {}), (few, {})) == ("reproduced", (1.2,), (1.4,), ["quick"])  # they are alike
    assert merged((a, {}), (few, more))[1] == (1.4,)  # of other parameters
    assert merged((a, {}), ({"A": [1.5] * 8}, {}))[1] == (1.5,)
    assert merged((a, {}), ({"A": [1.5] * 8}, {}), again=False)[1] == (1.2,)
    assert merged((a, {}), ({"A": [1.5] * 9}, {}), again=False)[1] == (1.5,)


def test_what_is_declared_otherwise_is_not_kept():
    old = ledger(claims.judge(claim(), [1.2] * 8))
    new = ledger(claims.judge(claim((1.1, None)), []))
    assert claims.merge(old, new).claims[0].verdict == "not run"
    assert claims.merge(None, new) == new.model_copy(update={"runs": ()})


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
        (("",), {"MF": [1.0]}, r"samples of p-1: expected a sequence.*, got \['MF'\]"),
        (("MF",), [1.0], r"samples of p-1: expected a mapping with the labels \['MF'\].*, got \[1\.0\]"),
        (("MF",), {"mf": [1.0]}, r"samples of p-1: expected .*, got \['mf'\]"),
        (("",), ["fast"], "samples of p-1: expected a number.*, got 'fast'"),
        (("",), [-math.inf], "samples of p-1: expected a number.*, got -inf"),
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
        (
            lambda row: row.update(verdict="in part"),
            "verdict is 'in part', but its settings give 'reproduced'",
        ),
        (lambda row: row.update(expected=[9.0, None]), "outcome is 'holds', but its samples give 'fails'"),
        (lambda row: row.update(expected=[0.5, None]), "p-1: missing, or differs from its declaration"),
        (lambda row: row.update(regime="everywhere"), "p-1: missing, or differs from its declaration"),
        (lambda row: row["parts"][0].update(measured=3.0), "measured is 3.0, but its samples give 1.3"),
        (lambda row: row["parts"][0].update(outcome="undecided"), "p-1: outcome is 'undecided', but"),
        (lambda row: row["parts"][0].update(interval=[1.0, 1.1]), "interval is (1.0, 1.1), but its samples"),
        (lambda row: row["parts"][0].update(samples=[]), "but its samples give 'not run'"),
        (
            lambda row: row["parts"][0]["samples"].pop(),
            "outcome is 'holds', but its samples give 'undecided'",
        ),
        (lambda row: row["parts"][0]["samples"].__setitem__(3, 1.3001), "digest is"),
        (lambda row: row.update(source="abstract"), "p-1: missing, or differs from its declaration"),
        (lambda row: row.update(id="p-2"), "p-2: not declared"),
    ],
)
def test_recheck_finds_what_was_edited(tmp_path, edit, fault):
    path = tmp_path / "claims.json"
    claims.write(path, ledger(claims.judge(claim(), [1.2, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.4])))
    assert claims.recheck(path, [claim()]) == []
    stored = json.loads(path.read_text())
    edit(stored["claims"][0])
    path.write_text(json.dumps(stored))
    assert any(fault in line for line in claims.recheck(path, [claim()]))


@pytest.mark.parametrize("text", ["", "{}", '{"paper": NaN}', "[1]", '{"versions": {}, "claims": 1}'])
def test_a_file_that_is_no_ledger(tmp_path, text):
    path = tmp_path / "claims.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"claims\.json: .+"):
        claims.read(path)


def test_a_setting_names_a_run_that_is_there():
    made = ledger(claims.judge(claim(), [1.2] * 8))
    with pytest.raises(ValueError, match=r"run of p-1: expected below 0, got 0"):
        claims.Ledger(paper="p", runs=(), claims=made.claims)


def test_shown_to_people():
    several = claim(parts=("MF", "LDA"))
    result = claims.judge(several, {"MF": [2.0, math.inf] * 4, "LDA": [1.5, *[0.5] * 7]})
    frame = claims.frame([result])
    assert frame.loc[("p-1", ""), "verdict"] == "in part (holds in 1 of 2 settings, undecided in 1)"
    assert frame["statement"].tolist() == ["A is faster than B", "", ""]
    assert frame.loc[("p-1", "MF"), "interval"] == "2 to ∞x, 8 seeds"
    assert frame.loc[("p-1", ""), "measured"] == "0.5 to ∞x"
    assert frame.loc[("p-1", "LDA"), "verdict"] == "undecided"
    assert claims.table([result]).row_count == 3
    several = [result, claims.judge(claim(), [2.0, *[3.0] * 7]), claims.judge(claim(), [])]
    lines = claims.markdown(several).splitlines()
    stated = "| p-1 | A is faster than B | >= 1x"
    assert lines[2] == f"{stated} | 0.5 to ∞x | in part (holds in 1 of 2 settings, undecided in 1) |"
    assert lines[3] == f"{stated} | 3x (2 to 3x, 8 seeds) | reproduced |"
    assert lines[4] == f"{stated} | - | not run |"
