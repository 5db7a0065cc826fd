"""The README stays true: its example runs as written, and its tables name what there is."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from dmlcore import policies
from dmlcore.papers import PAPERS

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


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_is_in_the_table(key):
    section = re.search(rf"<!-- claims: {key} -->\n(.*?)<!-- end -->", README, re.DOTALL)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section[1].splitlines()[2:]]
    assert [row[:2] for row in rows if row] == [[claim.id, claim.statement] for claim in PAPERS[key].claims]
    assert {row[-1] for row in rows if row} <= {"reproduced", "partly", "not reproduced", "not run"}


def test_every_policy_is_named():
    for name in policies.__all__:
        if name.islower():
            assert f"`{name}(" in README


def test_what_it_points_to_is_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).is_file(), target
    code_map = README.split("## Map of the code")[1].split("##")[0]
    for line in code_map.strip().splitlines():
        path = line.split()[0].rstrip(",")
        assert (ROOT / path).exists(), path
