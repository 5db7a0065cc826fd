"""The tour: its cells run, and its answers are folded away."""

import ast
import json
import operator
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import dmlcore as dml
from dmlcore.reproduce.command import TOUR
from dmlcore.reproduce.papers.compare import REGIMES

FOLDER = Path(__file__).parents[1] / "notebooks"
TEXT = (FOLDER / TOUR).read_text(encoding="utf-8")
CODE = [
    ("".join(cell["source"]), cell["metadata"].get("tags", []))
    for cell in json.loads(TEXT)["cells"]
    if cell["cell_type"] == "code"
]
SHORT = {"seeds": 1, "updates": 40}


def test_every_cell_runs_but_the_slow_ones(tmp_path, monkeypatch):
    """In this process, with few seeds. Those tagged `slow` train; test_browser.py runs all."""
    monkeypatch.chdir(FOLDER)  # where JupyterLab runs it
    names: dict = {}
    for source, tags in CODE:
        if "slow" not in tags:
            exec(compile(source, TOUR, "exec"), names)
        if "parameters" in tags:
            assert {name for name in names if not name.startswith("__")} == {*SHORT, "output"}
            names |= SHORT | {"output": str(tmp_path)}
    # A page may be dark: a picture brings a white background for its black text.
    assert {plt.figure(number).get_facecolor() for number in plt.get_fignums()} == {(1.0, 1.0, 1.0, 1.0)}
    plt.close("all")
    assert json.loads((tmp_path / "ssp.json").read_text())["traceEvents"]
    assert names["mine"](3).name == "mine(bound=3)"
    table = names["table"]
    assert len(table) == len(set(zip(table["problem"], table["regime"], table["method"], strict=True)))
    assert set(table["regime"]) == set(REGIMES)


@pytest.mark.parametrize(
    ("name", "value"), [("seeds", "three"), ("seeds", 0), ("updates", 1.5), ("output", 3)]
)
def test_a_wrong_parameter_is_named(name, value):
    """As papermill passes it, in a cell after the one with the defaults."""
    source = next(source for source, tags in CODE if "parameters" not in tags)
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        exec(source, {**SHORT, "output": "x", name: value})


def test_what_the_slow_cells_name_is_there():
    slow = [source for source, tags in CODE if "slow" in tags]
    assert slow
    for source in slow:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and re.fullmatch(r"dml[.\w]*", name := ast.unparse(node)):
                operator.attrgetter(name.removeprefix("dml."))(dml)


def test_answers_are_folded_away():
    assert TEXT.count("<details><summary>") == TEXT.count("</details>") >= 6
    assert "<details open" not in TEXT
