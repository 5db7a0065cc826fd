"""The default selection of cases: pairs of values, the same in every process, and no name left out."""

import collections
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import CLUSTERS
from conftest import covering
from engine_runs import ENGINES, KINDS
from test_faults import COSTS
from test_transport import TRANSPORTS

from dmlcore.methods.aggregate import AGGREGATES
from dmlcore.methods.codecs import CODECS
from dmlcore.methods.loads import LOADS
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.problems import PROBLEMS
from dmlcore.reproduce.papers import PAPERS

TESTS = Path(__file__).parent
# Names that cases of a file have: all there are.
EVERY = {
    "conformance": [*ALL_POLICIES, *ENGINES, *CLUSTERS],
    "parameter_server": ALL_POLICIES,
    "loads": {*LOADS} - {"equal", "fixed"},  # those that measure
    "codecs": CODECS,
    "aggregate": AGGREGATES,
    "transport": TRANSPORTS,
    "problems": PROBLEMS,
    "faults": COSTS,
    "style": PAPERS,
}


def pairs(cases):
    return {pair for case in cases for pair in itertools.combinations(enumerate(case), 2)}


@pytest.mark.parametrize("numbers", [(3, 3, 3), (7, 2, 5), (2, 2, 2, 2, 2), (31, 4, 4)], ids=str)
def test_pairs_are_all_there_and_most_cases_are_not(numbers):
    cases = tuple(itertools.product(*map(range, numbers)))
    chosen = [cases[place] for place in covering(cases, 5)]
    assert pairs(chosen) == pairs(cases)
    least = int(max(one * two for one, two in itertools.combinations(numbers, 2)))
    assert least <= len(chosen) <= 1.5 * least + 2


def test_of_two_parameters_every_value_is_there():
    cases = tuple(itertools.product(range(31), range(4)))
    chosen = [cases[place] for place in covering(cases, 0)]
    assert len(chosen) == 31
    assert {two for _, two in chosen} == {*range(4)}


def names_of(lines):
    found = collections.defaultdict(set)
    for file, case in re.findall(r"^(?:.*/)?test_(\w+)\.py::\w+\[(.*)\]$", lines, re.MULTILINE):
        found[file].add(case)
    return found


@pytest.fixture(scope="module")
def collected(request):
    """What the ids of the cases say that are run by default, by file.

    A run of the whole suite has collected them; else a process does it.
    """
    option = request.config.option
    some = option.keyword or option.markexpr or option.deselect or getattr(option, "lf", False)
    if not (option.all or some):
        here = names_of("\n".join(item.nodeid for item in request.session.items))
        if here.keys() >= {*EVERY}:
            return here
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, *(f"test_{name}.py" for name in EVERY)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=True,
    )
    return names_of(process.stdout)


def test_every_policy_is_run_on_the_virtual_clock_and_every_kind_on_every_engine(collected):
    rows = {tuple(case.split("-")[:2]) for case in collected["conformance"] if case.count("-") == 2}
    assert rows == {*itertools.product(ALL_POLICIES, ["simulate"]), *itertools.product(KINDS, ENGINES)}


@pytest.mark.parametrize("file", EVERY)
def test_every_name_is_there(collected, file):
    words = {word for case in collected[file] for word in [*case.split("-"), *re.findall(r"\w+", case)]}
    assert words >= {*EVERY[file]}
