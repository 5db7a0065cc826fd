"""Style as tests: linter, formatter and type checker, bare notebooks, and imports that run one way."""

import ast
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dmlcore as dml
from dmlcore.reproduce.command import TOUR
from dmlcore.reproduce.paper import MOST_BYTES
from dmlcore.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# A package or module imports from rows above its own, never from its own row or below.
LAYERS = (
    {"collecting", "notebook", "pages"},
    {"types", "checks", "files", "provenance"},
    {"calls", "sealed", "tables", "theory", "units"},
    {"reading"},
    {"cluster", "data"},
    {"methods", "problems"},
    {"trace"},
    {"training"},
    {"engines"},
    {"experiments"},
    {"view"},
    {"reproduce"},
)
# While no other thread runs: Python 3.11 may fail to parse then.
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "dmlcore").rglob("*.py"))
}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "pyrefly check"])
def test_checker(command):
    own = ["--python-interpreter-path", sys.executable] if command == "pyrefly check" else []
    command = [sys.executable, "-m", *command.split(), *own]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def imports(tree: ast.Module, package: str = "dmlcore") -> set[str]:
    """The modules of dmlcore that a file imports, anywhere in it, by their first name below dmlcore."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found += [f"{name}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in found if name.startswith("dmlcore.")}


def test_imports_are_found():
    source = "import dmlcore.trace\nfrom dmlcore import plot as p\nfrom ..engines.x import y\nfrom . import z"
    assert imports(ast.parse(source), "dmlcore.data") == {"trace", "plot", "engines", "data"}


def test_imports_run_one_way():
    wrong = []
    for path, tree in TREES.items():
        own = path.relative_to(ROOT / "dmlcore").parts[0].removesuffix(".py")
        if own == "__init__":  # the facade, whose imports are lazy
            continue
        package = ".".join(path.relative_to(ROOT).parts[:-1])
        for other in imports(tree, package) - {own}:
            if not LEVEL.get(other, 99) < LEVEL.get(own, -1):
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, "see LAYERS; a new module needs a place there"


def test_the_repository_stays_light():
    """No file has more than 2 MB, and a picture is compressed as `--publish` does it."""
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    tracked = [ROOT / name for name in told.stdout.split("\0")[:-1]] or [*ROOT.glob("figures/**/*.*")]
    sizes = {path: path.stat().st_size for path in tracked if path.is_file()}
    assert not [
        path for path, size in sizes.items() if size > (300_000 if path.suffix == ".png" else MOST_BYTES)
    ]
    assert sum(size for path, size in sizes.items() if path.suffix == ".png") < 8_000_000


TEXTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "notebooks/*.ipynb",
        "dmlcore/**/*.py",
        "dmlcore/**/*.toml",
        "benchmarks/*.py",
    )
    for path in ROOT.glob(pattern)
)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_that_texts_use_are_public(path):
    """`dml.problems.lasso` in a page, a notebook or a docstring is something that a reader can call."""
    for first, rest in {
        *re.findall(r"\bdml\.([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*)", path.read_text(encoding="utf-8"))
    }:
        assert first in dml.__all__, f"dml.{first} is not in dmlcore/__init__.pyi"
        found = getattr(dml, first)
        for name in rest.split(".")[1:]:
            if not inspect.ismodule(found):
                break
            assert hasattr(found, name), f"there is no dml.{first}{rest}"
            found = getattr(found, name)


def test_every_policy_is_public():
    assert {*dml.policies.__all__} - {*dml.__all__} == {"ALL_POLICIES"}


@pytest.mark.parametrize("name", dml.__all__)
def test_public_names_are_documented_and_return_what_is_public(name):
    found = getattr(dml, name)
    assert found.__doc__
    returned = getattr(found, "__annotations__", {}).get("return")
    kind = vars(sys.modules[found.__module__]).get(returned, returned) if returned else None
    if inspect.isclass(kind) and kind.__module__.startswith("dmlcore"):
        homes = [dml, *filter(inspect.ismodule, (getattr(dml, name) for name in dml.__all__))]
        assert any(kind.__name__ in vars(home).get("__all__", ()) for home in homes)


def printed(program):
    """What a program prints in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def test_command_line_starts_without_numerics():
    """A resume takes a second because nothing heavy is imported for it."""
    heavy = "{'jax', 'numpy', 'pandas', 'papermill'}"
    program = f"import sys, dmlcore.reproduce.command; print({heavy} & {{*sys.modules}})"
    assert printed(program) == "set()"


def test_timelines_are_made_without_jax():
    program = (
        "import sys, dmlcore as dml; before = {'jax', 'numpy'} & {*sys.modules};"
        "dml.simulate(dml.ssp(3), dml.Cluster.uniform(4), updates=9); print(before, 'jax' in sys.modules)"
    )
    assert printed(program) == "set() False"


def test_a_first_run_imports_nothing_that_only_others_need():
    program = (
        "import sys, optax, dmlcore as dml; cluster = dml.Cluster.uniform(2);"
        "dml.train(dml.problems.digits_mlp(), cluster, dml.bsp(), optax.sgd(0.1), updates=2);"
        "print({'scipy.stats', 'flax', 'sklearn', 'matplotlib', 'ray', 'IPython'} & {*sys.modules})"
    )
    assert printed(program) == "set()"


def test_data_are_fetched_without_jax():
    program = "import sys, dmlcore.data; print({'jax', 'flax', 'sklearn'} & {*sys.modules})"
    assert printed(program) == "set()"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_a_template(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in notebook["cells"]:
        assert not cell.get("outputs"), "clear the outputs: nbstripout notebooks/*.ipynb"
        assert cell.get("execution_count") is None, "clear the counts: nbstripout notebooks/*.ipynb"


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS.keys())
def test_parameters_cell_agrees_with_its_model(paper):
    notebook = json.loads((ROOT / "notebooks" / paper.notebook).read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", ())]
    literals = {
        node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse("".join(cell["source"])).body
    }
    model = paper.parameters.model_validate(literals)  # types and ranges
    defaults = {
        name: info.default for name, info in paper.parameters.model_fields.items() if name != "output"
    }
    assert {name: getattr(model, name) for name in defaults} == defaults
    assert set(literals) == set(paper.parameters.model_fields)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_belongs_to_a_paper(path):
    assert path.name in {TOUR, *(paper.notebook for paper in PAPERS.values())}
