"""Optimizers with their numbers as inputs, so that a new learning rate compiles nothing.

`optax.sgd(0.1)` and `optax.sgd(0.2)` are different closures, and `jax.jit` can only compare closures. When
traced, both are the same function except for a literal. `hoist` turns such literals into inputs and compares
functions by their text, unless that does not say all that they compute: see `content`.
`optax.inject_hyperparams` cannot do this: it wraps a factory and its arguments, while users pass the
optimizer that a factory returned, which may be a chain with schedules.
"""

import dataclasses
import enum
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend import core

from dmlcore import checks
from dmlcore.training import pacing
from dmlcore.training.compiling import OWN_SETTINGS


class Hoisted:
    """A traced function with its scalar literals and captured arrays as inputs.

    Equal functions compare and hash as equal, so that a jitted function with such a static argument is
    compiled once for all of them. A function whose text does not say all that it computes is equal to itself
    only; `untold` names what keeps it from it.
    """

    def __init__(self, jaxpr: core.Jaxpr, in_tree: Any, out_tree: Any):
        self._evaluate = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ()))
        self._in_tree, self._out_tree = in_tree, out_tree
        self.only_scales = all(e.primitive.name == "mul" for e in jaxpr.eqns)  # as plain SGD does
        kinds = [variable.aval for variable in jaxpr.invars]  # these include whether a type is weak
        (held, untold), around = content(jaxpr), [str(kinds), str(in_tree), str(out_tree)]
        self.untold = untold or ("a structure that holds an object" if " at 0x" in str(around) else "")
        self.text = "\n".join([str(jaxpr), *held, *around])
        self._hash = hash(self.text)

    @property
    def named(self) -> tuple[str, ...]:
        """The names of its named arguments."""
        return (*jax.tree.unflatten(self._in_tree, range(self._in_tree.num_leaves))[1],)

    def __call__(self, constants: tuple[Any, ...], *args: Any, **named: Any) -> Any:
        """Evaluates the function; JAX can transform the call."""
        leaves, tree = jax.tree.flatten((args, named))
        if tree != self._in_tree:
            raise TypeError(f"arguments of structure {tree}, traced with {self._in_tree}")
        return jax.tree.unflatten(self._out_tree, self._evaluate(*constants, *leaves))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hoisted) or self.untold or other.untold:
            return self is other
        return self.text == other.text


# Primitives that have, beside their program, functions that change no value: derivatives, or the same again.
BESIDE = {"custom_jvp_call", "custom_vjp_call", "custom_lin", "reduce", "reduce_window", "remat2"}
ELSEWHERE = {"ffi_call", "custom_partitioning"}  # what they call is known by a name only
SIMPLE = (type(None), bool, int, float, complex, str, bytes, type)
PLAIN = (*SIMPLE, np.generic, np.dtype, enum.Enum, jax.sharding.Mesh)


def content(jaxpr: Any) -> tuple[list[str], str]:
    """Returns what the text of a program shows in part or not at all, and what even this does not determine.

    The first are parameters and the values of arrays, of which a text has shapes or the first numbers. The
    second is "" or names an operation: a callback, of which a text has the function's name but not what it
    has captured; or a primitive that is not JAX's, whose meaning is registered elsewhere.
    """
    told: list[str] = []
    untold: list[str] = []

    def tell(value: Any, beside: bool = False) -> None:
        if isinstance(value, PLAIN):
            told.append(repr(value))
        elif hasattr(value, "eqns"):
            for const in getattr(value, "consts", ()):
                tell(const)
            for equation in value.eqns:
                note(equation)
        elif isinstance(value, Mapping):
            tell(sorted(value.items(), key=lambda item: str(item[0])), beside)
        elif isinstance(value, tuple | list):
            told.append(f"{type(value).__name__} {len(value)}")
            for each in value:
                tell(each, beside)
        elif isinstance(value, set | frozenset):
            tell(sorted(value, key=str), beside)
        elif hasattr(value, "__array__") or is_key(value):
            array = plain(value)
            told.append(f"{array.dtype} {array.shape} {array.tobytes().hex()}")
        elif callable(value):
            module, name = (getattr(value, f"__{key}__", "") for key in ("module", "qualname"))
            own = module.startswith("jax.") and getattr(sys.modules[module], name, None) is value
            if not beside and not own:
                raise LookupError
            told.append("" if beside else f"{module}.{name}")
        elif dataclasses.is_dataclass(value):
            tell({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, beside)
        elif type(value).__module__.partition(".")[0] in ("jax", "jaxlib") and " at 0x" not in repr(value):
            told.append(repr(value))
        else:
            raise LookupError

    def note(equation: Any) -> None:
        primitive = equation.primitive
        try:
            if primitive.name in ELSEWHERE or not known(primitive):
                raise LookupError
            tell([atom.val for atom in equation.invars if isinstance(atom, core.Literal)])
            tell(equation.params, primitive.name in BESIDE)
        except LookupError:
            untold.append(primitive.name)

    tell(jaxpr)
    return told, next(iter(untold), "")


_KNOWN: set[core.Primitive] = set()  # primitives of JAX's modules, as far as these are imported


def known(primitive: core.Primitive) -> bool:
    """Returns whether a primitive is one of JAX's own."""
    if primitive not in _KNOWN:
        for name, module in [*sys.modules.items()]:
            if name.partition(".")[0] == "jax":
                own = [*getattr(module, "__dict__", {}).values()]
                _KNOWN.update(each for each in own if isinstance(each, core.Primitive))
    return primitive in _KNOWN


def settings() -> dict[str, Any]:
    """Returns the settings of JAX and XLA on which numbers depend although a program's text may not."""
    found = {name: getattr(jax.config, f"jax_{name}") for name in (*OWN_SETTINGS, "random_seed_offset")}
    found["disable_most_optimizations"] = jax.config.read("jax_disable_most_optimizations")
    # Flags on the number of devices of a host, and on what is written for reading, change no number.
    flags = os.environ.get("XLA_FLAGS", "").split()
    flags = [flag for flag in flags if "device_count" not in flag and "dump" not in flag]
    return found | {"flags": flags, "backend": jax.default_backend()}


def is_key(array: Any) -> bool:
    """Returns whether an array consists of random keys of JAX, which are not numbers."""
    return isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def plain(array: Any) -> np.ndarray:
    """Returns an array, or the data of random keys, as a NumPy array."""
    return np.asarray(jax.random.key_data(array) if is_key(array) else array)


def hoist(function: Callable[..., Any], *args: Any, **named: Any) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    """Traces `function` and makes its floating-point scalar literals and captured arrays inputs.

    Guarantees: `hoisted(constants, *args)` computes the same as `function(*args)`, and two functions that
    differ only in such constants are equal when hoisted. Literals inside nested jitted functions and control
    flow stay literals. The arguments are examples, arrays or `jax.ShapeDtypeStruct`. If the function reads
    none of the named ones, the hoisted function has none.

    Example:
        >>> one, (c,) = hoist(lambda x: 0.5 * x, np.float32(1))
        >>> two, _ = hoist(lambda x: 0.25 * x, np.float32(1))
        >>> one == two, float(c), float(two((c,), np.float32(8)))
        (True, 0.5, 4.0)
    """
    leaves, structure = jax.tree.flatten((args, named))
    shapes = tuple(jax.typeof(leaf) for leaf in leaves)
    return _hoist(function, structure, shapes, str(settings()))


def traced(function: Callable[..., Any], *args: Any) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    """As `hoist`, for a function that is traced only once: the result is not cached."""
    leaves, structure = jax.tree.flatten((args, {}))
    return _hoist.__wrapped__(function, structure, tuple(jax.typeof(leaf) for leaf in leaves), "")


@functools.lru_cache(maxsize=128)  # tracing an optimizer takes longer than a hundred steps of it
def _hoist(
    function: Callable[..., Any], structure: Any, shapes: tuple[Any, ...], under: str
) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    inputs = [jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type) for each in shapes]
    args, named = jax.tree.unflatten(structure, inputs)
    call = lambda args, named: function(*args, **named)  # noqa: E731
    closed, shape = jax.make_jaxpr(call, return_shape=True)(args, named)
    jaxpr, literals = closed.jaxpr, {}
    read = {id(atom) for equation in jaxpr.eqns for atom in equation.invars} | {*map(id, jaxpr.outvars)}
    if named and not any(id(variable) in read for variable in jaxpr.invars[-len(jax.tree.leaves(named)) :]):
        structure = jax.tree.structure((args, {}))
        jaxpr = jaxpr.replace(invars=jaxpr.invars[: structure.num_leaves])

    def hoisted(atoms: Any) -> list[Any]:
        """Returns the operands with a new variable in place of each floating-point scalar literal."""
        found = []
        for atom in atoms:
            aval = atom.aval
            if isinstance(atom, core.Literal) and not aval.shape and np.issubdtype(aval.dtype, np.inexact):
                literals[variable := core.Var(aval)] = np.asarray(atom.val, aval.dtype)
                atom = variable
            found.append(atom)
        return found

    equations = [equation.replace(invars=hoisted(equation.invars)) for equation in jaxpr.eqns]
    outputs = hoisted(jaxpr.outvars)
    invars = [*jaxpr.constvars, *literals, *jaxpr.invars]
    jaxpr = jaxpr.replace(constvars=[], invars=invars, outvars=outputs, eqns=equations)
    return Hoisted(jaxpr, structure, jax.tree.structure(shape)), (
        *(const if is_key(const) else np.asarray(const) for const in closed.consts),
        *literals.values(),
    )


def hoist_update(optimizer: Any, params: Any, state: Any) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    """`hoist` of the update of a server's optimizer, which may read its progress."""
    return hoist(optimizer.update, params, state, params, **pacing.named(optimizer.update, pacing.progress()))


def check_update(name: str, optimizer: Any, shapes: Any, *, told: bool = True) -> None:
    """Raises ValueError unless an optimizer's update needs only a gradient, its state and the parameters.

    `told`: whether it may read its progress, too.

    >>> import optax
    >>> check_update("optimizer", optax.contrib.reduce_on_plateau(), jax.ShapeDtypeStruct((3,), "float32"))
    Traceback (most recent call last):
    ValueError: optimizer: expected an optax optimizer whose update needs only a gradient, its state and the \
parameters, got one whose update fails (missing 1 required keyword-only argument: 'value')
    """
    try:
        state = jax.eval_shape(optimizer.init, shapes)
        if told:
            hoist_update(optimizer, shapes, state)
        else:
            hoist(optimizer.update, shapes, state, shapes)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        fault = str(error).strip().splitlines()[0].split("() ")[-1]
        expected = "an optax optimizer whose update needs only a gradient, its state and the parameters"
        raise ValueError(checks.message(name, f"one whose update fails ({fault})", expected)) from error


def fingerprint(hoisted: Hoisted, constants: tuple[Any, ...], name: str) -> str:
    """Returns a hash of a hoisted function and its constants: the same in every process.

    Raises:
        ValueError: the text of the function does not say all that it computes; `name` says whose it is.
    """
    if hoisted.untold:
        why = "with save= or checkpoint=: kept results could be those of another one"
        checks.reject(
            name, f"one with {hoisted.untold}", f"one that JAX's program describes completely ({why})"
        )
    content = hashlib.sha256(hoisted.text.encode())
    for constant in constants:
        content.update(plain(constant).tobytes())
    return content.hexdigest()
