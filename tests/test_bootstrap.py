"""The bootstrap: what makes it start, and that nothing half-made is ever taken for an environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bootstrap

ROOT = Path(__file__).parents[1]
PYPROJECT = '[project]\ndependencies = ["{name}>=1.0"]\n[project.optional-dependencies]\ndev = []\n'
COMMAND = "import sys\ndef main(arguments, root):\n    print('in', sys.executable, arguments)\n    return 7\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a dependency that nobody has, and a uv that installs nothing."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    root = tmp_path / "project"
    (root / "dmlcore/reproduce").mkdir(parents=True)
    for name in (
        "__init__.py",
        "reproduce/__init__.py",
    ):  # else the dmlcore that .venv names would be found first
        (root / "dmlcore" / name).touch()
    (root / "dmlcore/reproduce/command.py").write_text(COMMAND)
    for name in ("bootstrap.py", "paper_repro.py"):
        shutil.copy(ROOT / name, root)
    (root / "pyproject.toml").write_text(PYPROJECT.format(name="no-such-distribution"))
    (root / "requirements.lock").write_text("# nothing\n")
    fake_uv(root, code=0)
    return root


def fake_uv(root, code):
    script = root / "bin/uv"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\necho called >> {root}/calls\nexit {code}\n")
    script.chmod(0o755)


def call(root, **more):
    environment = os.environ | {"PATH": f"{root / 'bin'}:/usr/bin:/bin", "PIP_NO_INDEX": "1"} | more
    return subprocess.run(
        [sys.executable, str(root / "paper_repro.py"), "list", "-x"],
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def calls(root):
    return (root / "calls").read_text().count("called")


def test_goes_on_inside_with_the_same_arguments_and_makes_it_once(project):
    for _ in range(2):
        process = call(project)
        assert process.returncode == 7, process.stderr
        assert process.stdout == f"in {project}/.venv/bin/python ['list', '-x']\n"
    assert calls(project) == 1
    inside = subprocess.run(
        [project / ".venv/bin/python", "-c", "import dmlcore; print(*dmlcore.__path__)"],
        capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert inside.stdout == f"{project}/dmlcore\n"
    (project / "requirements.lock").write_text("# other\n")
    call(project)
    assert calls(project) == 2


def test_a_failed_install_is_tried_again(project):
    fake_uv(project, code=1)
    (project / "requirements.lock").write_text("no-such-distribution==1.0 --hash=sha256:" + "0" * 64 + "\n")
    process = call(project)
    assert process.returncode == 1
    assert "making .venv failed" in process.stderr
    assert "Traceback" not in process.stderr
    assert not (project / ".venv/stamp").exists()
    fake_uv(project, code=0)
    assert call(project).returncode == 7
    assert calls(project) == 2


def test_two_at_once_make_it_once(project):
    slow = project / "bin/uv"
    slow.write_text(slow.read_text().replace("echo", "sleep 1; echo"))
    environment = os.environ | {"PATH": f"{project / 'bin'}:/usr/bin:/bin"}
    words = [sys.executable, str(project / "paper_repro.py")]
    both = [subprocess.Popen(words, env=environment, stdout=-3, stderr=-3) for _ in range(2)]
    assert [process.wait(60) for process in both] == [7, 7]
    assert calls(project) == 1


def test_not_needed_where_everything_is_installed(project):
    (project / "pyproject.toml").write_text(PYPROJECT.format(name="pytest"))
    assert call(project).stdout.startswith(f"in {sys.executable} ")
    assert not (project / ".venv").exists()
    assert bootstrap.missing(ROOT) == []


def test_an_interrupted_import_exits_as_any_interrupt(project):
    (project / "pyproject.toml").write_text(PYPROJECT.format(name="pytest"))
    (project / "dmlcore/reproduce/command.py").write_text("raise KeyboardInterrupt")
    process = call(project)
    assert process.returncode == 130
    assert "Traceback" not in process.stderr


def test_kill_ends_a_command_as_an_interrupt_does(project):
    (project / "pyproject.toml").write_text(PYPROJECT.format(name="pytest"))
    # Many short waits: a signal that comes just before a wait begins is handled when that wait ends.
    wait = "for _ in range(6000):\n        time.sleep(0.01)"
    slow = f"try:\n    print('begun', flush=True)\n    {wait}\nfinally:\n    print('end')\n"
    (project / "dmlcore/reproduce/command.py").write_text(f"import time\n{slow}")
    words = [sys.executable, str(project / "paper_repro.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.communicate(timeout=60)[0] == "end\n"
    assert process.returncode == 130


def test_too_old_is_missing(project):
    (project / "pyproject.toml").write_text(PYPROJECT.format(name="pytest").replace("1.0", "999"))
    assert bootstrap.missing(project) == ["pytest>=999"]


def test_the_environment_of_another_checkout_is_left_as_it_is_behind_a_link(project, tmp_path):
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    (other / "stamp").write_text("finished")
    (project / ".venv").symlink_to(other)
    assert call(project).returncode == 7
    assert not (project / ".venv").is_symlink()
    assert (other / "stamp").read_text() == "finished"
    assert (other / "bin").exists()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_says_what_to_install_where_venv_is_missing(module, tmp_path, monkeypatch):
    find = bootstrap.importlib.util.find_spec
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: name != module and find(name))
    with pytest.raises(SystemExit, match=r"apt install python3\.\d+-venv"):
        bootstrap.create(tmp_path / ".venv", with_pip=True)


@pytest.mark.parametrize("version", ["2.7", "3.8", "3.10"])
def test_an_old_python_is_told_so(version):
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"no Python {version} here")
    process = subprocess.run([python, str(ROOT / "paper_repro.py")], capture_output=True, text=True)
    assert process.returncode == 2
    assert process.stderr.startswith("dmlcore needs Python 3.11 or later")
    assert process.stderr.count("\n") == 1
