"""Makes `.venv` from requirements.lock and goes on inside it; imports the standard library only."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path


def ensure_environment(root: Path) -> None:
    """Returns where all dependencies are installed; otherwise starts this very command anew in `root/.venv`.

    An environment that is unfinished, or older than the lock, is made anew: its stamp is written last.

    Args:
        root: folder that holds pyproject.toml and requirements.lock.
    """
    folder = root / ".venv"
    inside = Path(sys.prefix).resolve() == folder.resolve()
    if not inside and not missing(root):
        return
    try:
        made = make(root, folder)
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"making .venv failed: {error}\nRun the same command again; an unfinished .venv is not used."
        )
    if made or not inside:
        python = str(folder / "bin" / "python")
        os.execv(python, [python, *sys.argv])


def missing(root: Path) -> list[str]:
    """Returns the requirements in pyproject.toml that this interpreter lacks or has too old; imports none."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lacking = []
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        name, _, least = requirement.partition(">=")
        try:
            old = numbers(importlib.metadata.version(name)) < numbers(least)
        except importlib.metadata.PackageNotFoundError:
            old = True
        lacking += [requirement] * old
    return lacking


def numbers(version: str) -> list[int]:
    """Returns the numbers of a version, in order.

    >>> numbers("2.7.1")
    [2, 7, 1]
    """
    return [int(part) for part in re.findall(r"\d+", version)]


def make(root: Path, folder: Path) -> bool:
    """Makes the environment unless it is there and up to date; returns whether it did."""
    lock, stamp = root / "requirements.lock", folder / "stamp"
    wanted = hashlib.sha256(lock.read_bytes() + repr((sys.version_info[:2], str(root))).encode()).hexdigest()
    guard = os.open(root, os.O_RDONLY)  # of two calls the second waits; a killed one lets go by itself
    fcntl.flock(guard, fcntl.LOCK_EX)
    try:
        if stamp.exists() and stamp.read_text() == wanted:
            return False
        say("Making .venv from requirements.lock, which happens once and takes about a minute.")
        if folder.is_symlink():
            folder.unlink()  # another checkout's environment, which keeps its stamp
        stamp.unlink(missing_ok=True)
        install(lock, folder)
        packages = next(folder.glob("lib/python*/site-packages"))
        (packages / "dmlcore.pth").write_text(f"{root}\n")  # kernels and scripts import dmlcore from anywhere
        stamp.write_text(wanted)
        return True
    finally:
        os.close(guard)


def install(lock: Path, folder: Path) -> None:
    """Installs the lock into a new environment: with uv where it can be had, else with pip."""
    python, uv = folder / "bin" / "python", shutil.which("uv")
    create(folder, with_pip=not uv)
    if not uv:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--target", folder / "uv", "uv"])
        uv = shutil.which("uv", path=folder / "uv" / "bin")
    if uv:
        sync = [uv, "pip", "sync", "--require-hashes", "--python", python, lock]
        if sys.dont_write_bytecode:  # else Python keeps what it compiles at an import, a tenth of all
            sync.append("--compile-bytecode")
        if subprocess.run(sync).returncode == 0:
            return
        create(folder, with_pip=True)
    say("uv is not available; pip takes some minutes.")
    subprocess.run([python, "-m", "pip", "install", "--require-hashes", "--no-deps", "-r", lock], check=True)


def create(folder: Path, with_pip: bool) -> None:
    """Creates an empty virtual environment, clearing what was there."""
    if not importlib.util.find_spec("venv") or (with_pip and not importlib.util.find_spec("ensurepip")):
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        sys.exit(
            f"this Python cannot make virtual environments, since its venv or ensurepip module is missing.\n"
            f"On Debian and Ubuntu, try apt install {version}-venv; elsewhere, install a full Python or uv."
        )
    import venv

    venv.EnvBuilder(symlinks=True, clear=True, with_pip=with_pip).create(folder)


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
