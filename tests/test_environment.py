"""One truth on dependencies: pyproject.toml says what, the lock says which, environment.yml installs it."""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]]
LOCK = (ROOT / "requirements.lock").read_text()


def pins():
    """The lock's entries: requirement and number of hashes."""
    entries = re.split(r"\n(?=[a-z0-9])", "\n".join(line for line in LOCK.split("\n") if "#" not in line))
    return [
        (Requirement(entry.split("\\")[0].strip()), entry.count("--hash=sha256:"))
        for entry in entries
        if entry.strip()
    ]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_lock_satisfies_pyproject(version, platform):
    environment = {"python_version": version, "python_full_version": f"{version}.1", "sys_platform": platform}
    environment |= {"platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform]}
    chosen = {}
    for requirement, _ in pins():
        if requirement.marker is None or Marker(str(requirement.marker)).evaluate(environment):
            assert canonicalize_name(requirement.name) not in chosen, "two versions at once"
            chosen[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    for wanted in WANTED:
        assert wanted.specifier.contains(chosen[canonicalize_name(wanted.name)]), wanted


def test_lock_has_hashes_and_no_address():
    assert len(pins()) > 100
    assert all(hashes > 0 for _, hashes in pins())
    assert not re.search(r"://|--index|--find-links|--extra-index|file:", LOCK)
    assert "-o requirements.lock" in LOCK.splitlines()[1], "how to make it again"


def section():
    content = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [entry for entry in content["dependencies"] if isinstance(entry, str)]
    (nested,) = [entry for entry in content["dependencies"] if isinstance(entry, dict)]
    assert [entry.partition("=")[0] for entry in plain] == ["python", "pip"], (
        "conda itself brings nothing else"
    )
    return nested["pip"]


@pytest.fixture
def folder():
    """Gone afterwards, since a whole environment is large."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_environment_yml_installs_the_lock():
    assert section() == ["-r requirements.lock"]


@pytest.mark.full  # what it names is tested before, and that the lock has all that is needed
def test_environment_yml_installs_with_plain_pip(folder):
    """As conda does it: the section becomes a requirements file next to environment.yml.

    pip reads and resolves all of it for this environment, where what the lock says is not fetched again: to
    fetch hundreds of megabytes takes minutes. That pip finds a file of the right hash, a small one shows.
    """
    (folder / "requirements.lock").write_text(LOCK)
    (folder / "section.txt").write_text("\n".join(section()) + "\n")
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "--disable-pip-version-check"]

    (folder / "probe.txt").write_text(LOCK[LOCK.index("iniconfig==") :].partition("    # via")[0])
    probe = [
        "download",
        "--quiet",
        "--no-deps",
        "--retries",
        "0",
        "--timeout",
        "20",
        "--dest",
        folder / "probe",
    ]
    if subprocess.run([*pip, *probe, "-r", folder / "probe.txt"], capture_output=True).returncode:
        pytest.skip("no package index to reach")

    here = [*pip, "--python", sys.executable]
    install = [*here, "install", "--quiet", "--dry-run", "--report", "report.json", "-r", "section.txt"]
    process = subprocess.run(install, cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    report = json.loads((folder / "report.json").read_text())
    chosen = [each["metadata"] for each in report["install"]]
    versions = {canonicalize_name(each.name): each.version for each in distributions()}
    versions |= {canonicalize_name(each["name"]): each["version"] for each in chosen}
    for wanted in WANTED:
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted
