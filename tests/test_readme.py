"""The README stays true: its example runs as written, and its tables name what there is."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from dmlcore.methods import aggregate, codecs, loads, policies
from dmlcore.reproduce import claims
from dmlcore.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_as_written(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    plt.close("all")
    assert set(names["runs"]["method"]) == set(names["methods"])
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "timeline.png"}


def committed(key):
    """The results of a paper as committed: a run of one's own does not count."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    if (found := in_head(key)) is None:
        pytest.skip("not a git checkout with this ledger")
    return found


def in_head(place):
    path = f"figures/{place}/claims.json"
    show = subprocess.run(["git", "show", f"HEAD:./{path}"], cwd=ROOT, capture_output=True)
    return None if show.returncode else claims.parse(show.stdout, Path(path))


@pytest.mark.parametrize("key", PAPERS)
def test_the_claims_are_those_of_the_committed_ledger(key):
    """`python -m dmlcore.reproduce.claims figures/*/claims.json` prints the tables."""
    assert table(key) == claims.markdown(committed(key).claims)


def test_the_tally_is_that_of_the_committed_ledgers():
    (shown,) = re.findall(r"<!-- tally -->\n(.*?)<!-- end -->", README, re.DOTALL)
    full = [in_head(f"full/{key}") for key in PAPERS]
    assert shown == claims.tally(claims.standing([*map(committed, PAPERS), *filter(None, full)]))


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_is_in_the_table(key):
    declared = claims.markdown(
        [claims.judge(claim, {} if claim.parts else None) for claim in PAPERS[key].claims]
    )
    first = [[line.split(" | ")[:3] for line in lines.splitlines()] for lines in (table(key), declared)]
    assert first[0] == first[1]


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_that_was_measured_has_a_finding(key):
    for result in committed(key).claims:
        finding = PAPERS[key].findings.get(result.id, "")
        if result.measured_on is not None:
            assert 1 <= len(re.findall(r"(?<!et al)[.?!](?= |$)", finding)) <= 3, result.id


@pytest.mark.parametrize("key", [key for key, paper in PAPERS.items() if paper.summary])
def test_a_summary_answers_what_the_abstract_claims_at_the_top_of_its_notebook(key):
    paper = PAPERS[key]
    named = " ".join(answer.claim.partition(": ")[0] for answer in paper.summary.answers)
    begun = {claim.id.partition("-")[0] for claim in paper.claims if claim.source == "abstract"}
    assert begun <= {*re.findall(r"\w+", named)}
    cells = json.loads((ROOT / "notebooks" / paper.notebook).read_text(encoding="utf-8"))["cells"]
    assert ["PAPER.in_short()"] in [cell["source"] for cell in cells[:6]]


def test_every_paper_has_a_summary():
    assert all(
        paper.summary for paper in PAPERS.values() if any(c.source == "abstract" for c in paper.claims)
    )


def table(key):
    return re.search(rf"<!-- claims: {key} -->\n(.*?)<!-- end -->", README, re.DOTALL)[1]


def test_every_policy_is_named():
    for name in policies.__all__:
        if name.islower():
            assert f"`{name}(" in README


def test_every_codec_is_named():
    for name in codecs.CODECS:
        assert f"`{name}(" in README


def test_every_load_rule_is_named():
    for name in loads.LOADS:
        assert f"`{name}(" in README


def test_every_aggregate_is_named():
    for name in aggregate.AGGREGATES:
        assert f"`{name}(" in README


def test_what_it_points_to_is_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).is_file(), target
    code_map = README.split("## Map of the code")[1].split("##")[0]
    for line in code_map.strip().splitlines():
        path = line.split()[0].rstrip(",")
        assert (ROOT / path).exists(), path
