"""Compilation: what is compiled by itself, XLA's options for loops, and the cache of compiled programs."""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from dmlcore import files
from dmlcore.collecting import paused

# For XLA on a CPU. By default it distributes independent operations of a step over threads. In small problems
# an operation takes microseconds, less than the distribution costs: a run with SSP then uses two cores for as
# long as it needs one core with this option. Large operations use all cores in both cases.
ONE_BY_ONE: dict[str, Any] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}

# Settings of JAX that change numbers, and that a thread may have for itself.
OWN_SETTINGS = (
    "enable_x64",
    "default_matmul_precision",
    "default_prng_impl",
    "threefry_partitionable",
    "numpy_dtype_promotion",
)

UNROLLED = 4  # steps per iteration of a loop on an accelerator

if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
    # A user's setting has priority. Our folder belongs to the user, because a cache can contain code.
    jax.config.update("jax_compilation_cache_dir", str(files.cache() / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def inherited() -> Callable[[], contextlib.ExitStack]:
    """Returns a function whose context gives another thread the JAX settings that this thread has."""
    names = *OWN_SETTINGS, "default_device"
    values = [(getattr(jax, name), getattr(jax.config, f"jax_{name}")) for name in names]

    def context() -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        for setting, value in values:
            stack.enter_context(setting(value))
        return stack

    return context


def isolated(runs: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Returns `function(*args)`, compiled apart from everything around it; zeros where not `runs`.

    Guarantees: the same bits in every program that contains this call. XLA optimises and fuses each branch of
    a condition by itself, since what runs is decided later; layouts are those that the branch prefers, and
    its results are rounded in memory. Around an `optimization_barrier` it fuses all the same, because it
    removes barriers first; and it rewrites some operations, such as convolutions, at the top of a program
    only.

    Args:
        runs: a condition that is an input, or follows from one, so that XLA cannot decide it.
        function: the function; what is read from a larger array is read before, since a branch copies it.
        args: arrays; everything that the function computes with and that differs between programs.
    """
    traced, kinds = jax.make_jaxpr(function, return_shape=True)(*args)  # once, as tracing takes long
    leaves, tree = jax.tree.flatten(kinds)
    found = jax.lax.cond(
        runs,
        core.jaxpr_as_fun(traced),
        lambda *_: [jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves],
        *jax.tree.leaves(args),
    )
    return jax.tree.unflatten(tree, found)


def unrolled() -> int:
    """Returns the number of steps per iteration of a compiled loop.

    Each iteration evaluates the loop's condition, and an accelerator may need the host for it. On a CPU the
    condition costs almost nothing, and more steps take longer to compile.
    """
    return 1 if jax.default_backend() == "cpu" else UNROLLED


@functools.cache
def most_mappings() -> int:
    """Returns the largest number of memory mappings of a process; 0 if the system has no such limit.

    A program on the CPU needs a hundred or more. Beyond the limit, XLA ends the process.
    """
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return 0


def mappings() -> int:
    """Returns the number of memory mappings of this process, if the system reports it."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


class Compiled:
    """A function compiled by `jax.jit`, with `ONE_BY_ONE` if the default backend is a CPU at the first call.

    It cannot be called inside another compiled function, because XLA takes its options from the outermost
    one. Programs stay in memory until half of the process's memory mappings are used. All programs of JAX are
    then released, and the cache on disk provides those that are needed again. So a session can run any number
    of methods. If several threads need a new program, one compiles it and the others wait.

    Args:
        function: the function to compile.
        xla: further options of XLA. Default: None, no others.
        how: options of `jax.jit`.
    """

    def __init__(self, function: Callable[..., Any], xla: dict[str, Any] | None = None, **how: Any):
        functools.update_wrapper(self, function)

        def jitted() -> Any:
            own = ONE_BY_ONE if jax.default_backend() == "cpu" else {}
            return jax.jit(function, compiler_options=own | (xla or {}), **how)

        self._jitted = functools.cache(jitted)
        self._let_go = 0  # compiled programs that were released
        # Arguments -> what is held while their program is compiled; None: it has been.
        self._locks: dict[Any, Any] = {}
        _ALL.add(self)

    def __call__(self, *args: Any, **named: Any) -> Any:
        before, kinds = self._kept(), _kinds((args, named))
        if (lock := self._locks.setdefault(kinds, threading.Lock())) is not None:
            with lock:
                self.compile(*args, **named)  # the call finds the program
            self._locks[kinds] = None
        result = self._jitted()(*args, **named)
        if self._kept() > before and mappings() > most_mappings() / 2 > 0:
            _let_go()
        return result

    def compile(self, *args: Any, **named: Any) -> Any:
        """Compiles the program for such arguments and returns it, to read its text and its use of memory."""
        with paused():  # the collector would scan the program again and again, a tenth of the time
            return self._jitted().lower(*args, **named).compile()

    def programs(self) -> int:
        """The number of programs compiled so far."""
        return self._let_go + self._kept()

    def _kept(self) -> int:
        jitted: Any = self._jitted()
        return int(jitted._cache_size())


_ALL: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _let_go() -> None:
    """Releases all programs of JAX: single operations have mappings, too. Those that run end first."""
    for each in [*_ALL]:
        each._let_go += each._kept()
        each._locks.clear()
    jax.clear_caches()


def _kinds(given: Any) -> Any:
    """Returns what a program is compiled for: types of arrays and floats, and the values of other leaves."""

    def kind(leaf: Any) -> Any:
        return (leaf.shape, leaf.dtype) if hasattr(leaf, "shape") else float if type(leaf) is float else leaf

    leaves, tree = jax.tree.flatten(given)
    return tree, tuple(map(kind, leaves))


def compiled(**how: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Decorator that makes a function `Compiled`.

    >>> @compiled(static_argnames=("times",))
    ... def repeated(number, times):
    ...     return number * times
    >>> int(repeated(3, times=2)), repeated.programs()
    (6, 1)
    """
    return functools.partial(Compiled, **how)
