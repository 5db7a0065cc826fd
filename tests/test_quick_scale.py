"""The first command of the README, paper by paper and on two seeds: each notebook runs at quick scale."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmlcore.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
NEEDED = (
    "dmlcore",
    "figures",
    "notebooks",
    "bootstrap.py",
    "paper_repro.py",
    "pyproject.toml",
    "requirements.lock",
)


@pytest.mark.full  # what notebooks call has tests of its own: test_ssp_claims.py and those of other papers
@pytest.mark.parametrize("key", PAPERS)
def test_a_notebook_runs_at_quick_scale(tmp_path, key):
    for name in NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "paper_repro.py", key, "--seeds", "2"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert (tmp_path / "runs" / key / "figures" / "claims.json").is_file()
