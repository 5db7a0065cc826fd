"""How XLA compiles what a run spends its time in, and where JAX keeps what is compiled."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from dmlcore import files

# Of XLA on a CPU: by default it shares the operations of a step out among threads, as far as they do not
# depend on one another. They take microseconds each in small problems, less than sharing them out costs: with
# SSP a run keeps two cores busy for as long as it needs one here. Large operations use all cores either way.
ONE_BY_ONE: dict[str, Any] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}

UNROLLED = 4  # steps in a turn of a loop, on an accelerator

if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
    # A user's own setting stands; ours is in the user's own folder, since a cache can carry code.
    jax.config.update("jax_compilation_cache_dir", str(files.cache() / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@functools.cache
def options() -> dict[str, Any]:
    """Returns XLA's options for loops: those of `ONE_BY_ONE`, none where this release does not know them."""
    try:
        jax.jit(lambda: 0, compiler_options=ONE_BY_ONE).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return ONE_BY_ONE


def unrolled() -> int:
    """Returns how many steps are compiled as one turn of a loop.

    Each iteration evaluates the loop's condition, for which an accelerator may need the host; on a CPU that
    costs next to nothing, and more steps take longer to compile.
    """
    return 1 if jax.default_backend() == "cpu" else UNROLLED


@functools.cache
def most_mappings() -> int:
    """Returns how many mappings of memory a process may have; 0 where the system has no such limit.

    A program that runs on the CPU takes a hundred or more. Where there are too many, XLA ends the process.
    """
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return 0


def mappings() -> int:
    """Returns how many mappings this process has, where the system tells."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


class Compiled:
    """A function compiled by `jax.jit` with `options`, which are asked for when it is first called.

    It cannot be called in a function that is itself compiled: XLA has its options from the outermost one.
    Programs are kept until half of the process's mappings are used up; then all are let go of, and what is
    needed again comes from the cache on disk. So a session may run as many methods as it likes.

    Args:
        function: what is compiled.
        how: options of `jax.jit`.
    """

    def __init__(self, function: Callable[..., Any], **how: Any):
        functools.update_wrapper(self, function)
        self._jitted = functools.cache(lambda: jax.jit(function, compiler_options=options(), **how))
        self._let_go = 0  # programs that were compiled and are not kept
        _ALL.add(self)

    def __call__(self, *args: Any, **named: Any) -> Any:
        before = self._kept()
        result = self._jitted()(*args, **named)
        if self._kept() > before and mappings() > most_mappings() / 2 > 0:
            for each in [*_ALL]:
                each.let_go()
        return result

    def compile(self, *args: Any, **named: Any) -> Any:
        """Returns the program for such arguments, compiled and not run: its text and the memory it needs."""
        return self._jitted().lower(*args, **named).compile()

    def programs(self) -> int:
        """How many programs it was compiled to so far."""
        return self._let_go + self._kept()

    def let_go(self) -> None:
        """Keeps no program; one that runs in another thread ends first."""
        jitted: Any = self._jitted()
        self._let_go += self._kept()
        jitted.clear_cache()

    def _kept(self) -> int:
        jitted: Any = self._jitted()
        return int(jitted._cache_size())


_ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()


def compiled(**how: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Decorates a function as `Compiled`.

    >>> @compiled(static_argnames=("times",))
    ... def repeated(number, times):
    ...     return number * times
    >>> int(repeated(3, times=2)), repeated.programs()
    (6, 1)
    """
    return functools.partial(Compiled, **how)
