"""Optimizers with their numbers as inputs, so that a new learning rate compiles nothing.

`optax.sgd(0.1)` and `optax.sgd(0.2)` are different closures, and `jax.jit` can only compare closures. When
traced, both are the same function except for a literal. `hoist` turns such literals into inputs and compares
functions by their text. `optax.inject_hyperparams` cannot do this: it wraps a factory and its arguments,
while users pass the optimizer that a factory returned, which may be a chain with schedules.
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from dmlcore import checks


class Hoisted:
    """A traced function with its scalar literals and captured arrays as inputs.

    Equal functions compare and hash as equal, so that a jitted function with such a static argument is
    compiled once for all of them.
    """

    def __init__(self, jaxpr: core.Jaxpr, in_tree: Any, out_tree: Any):
        self._evaluate = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ()))
        self._in_tree, self._out_tree = in_tree, out_tree
        self.only_scales = all(e.primitive.name == "mul" for e in jaxpr.eqns)  # as plain SGD does
        held = [text for equation in jaxpr.eqns for text in captured(equation.params)]
        kinds = [variable.aval for variable in jaxpr.invars]  # these include whether a type is weak
        self.text = "\n".join([str(jaxpr), *held, str(kinds), str(in_tree), str(out_tree)])
        self._hash = hash(self.text)

    def __call__(self, constants: tuple[Any, ...], *args: Any) -> Any:
        """Evaluates the function; JAX can transform the call."""
        leaves, tree = jax.tree.flatten(args)
        if tree != self._in_tree:
            raise TypeError(f"arguments of structure {tree}, traced with {self._in_tree}")
        return jax.tree.unflatten(self._out_tree, self._evaluate(*constants, *leaves))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hoisted) and self.text == other.text


def captured(parameters: Any) -> list[str]:
    """Returns the values of arrays in nested functions as text; a jaxpr's text shows only their shapes."""
    found = []
    for value in jax.tree.leaves(parameters, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
        if hasattr(value, "eqns"):
            found += [plain(const).tobytes().hex() for const in getattr(value, "consts", ())]
            found += [text for equation in value.eqns for text in captured(equation.params)]
    return found


def is_key(array: Any) -> bool:
    """Returns whether an array consists of random keys of JAX, which are not numbers."""
    return isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def plain(array: Any) -> np.ndarray:
    """Returns an array, or the data of random keys, as a NumPy array."""
    return np.asarray(jax.random.key_data(array) if is_key(array) else array)


def is_hoisted(atom: Any) -> bool:
    """Returns whether an operand is a floating-point scalar literal."""
    if not isinstance(atom, core.Literal):
        return False
    aval: Any = atom.aval
    return aval.shape == () and np.issubdtype(aval.dtype, np.inexact)


def hoist(function: Callable[..., Any], *args: Any) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    """Traces `function` and makes its floating-point scalar literals and captured arrays inputs.

    Guarantees: `hoisted(constants, *args)` computes the same as `function(*args)`, and two functions that
    differ only in such constants are equal when hoisted. Literals inside nested jitted functions and control
    flow stay literals. The arguments are examples, arrays or `jax.ShapeDtypeStruct`.

    Example:
        >>> one, (c,) = hoist(lambda x: 0.5 * x, np.float32(1))
        >>> two, _ = hoist(lambda x: 0.25 * x, np.float32(1))
        >>> one == two, float(c), float(two((c,), np.float32(8)))
        (True, 0.5, 4.0)
    """
    leaves, structure = jax.tree.flatten(args)
    shapes = tuple(jax.typeof(leaf) for leaf in leaves)
    real = str(jax.dtypes.canonicalize_dtype(float))  # the types of intermediate values may depend on it
    return _hoist(function, structure, shapes, real)


def traced(function: Callable[..., Any], *args: Any) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    """As `hoist`, for a function that is traced only once: the result is not cached."""
    leaves, structure = jax.tree.flatten(args)
    return _hoist.__wrapped__(function, structure, tuple(jax.typeof(leaf) for leaf in leaves), "")


@functools.lru_cache(maxsize=128)  # tracing an optimizer takes longer than a hundred steps of it
def _hoist(
    function: Callable[..., Any], structure: Any, shapes: tuple[Any, ...], real: str
) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    inputs = [jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type) for each in shapes]
    args = jax.tree.unflatten(structure, inputs)
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    jaxpr, literals = closed.jaxpr, {}

    def hoisted(atoms: Any) -> list[Any]:
        """Returns the operands with a new variable in place of each literal."""
        found = []
        for atom in atoms:
            if is_hoisted(atom):
                literals[variable := core.Var(atom.aval)] = np.asarray(atom.val, atom.aval.dtype)
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


def check_update(name: str, optimizer: Any, shapes: Any) -> None:
    """Raises ValueError unless an optimizer's update needs only a gradient, its state and the parameters.

    >>> import optax
    >>> check_update("optimizer", optax.contrib.reduce_on_plateau(), jax.ShapeDtypeStruct((3,), "float32"))
    Traceback (most recent call last):
    ValueError: optimizer: expected an optax optimizer whose update needs only a gradient, its state and the \
parameters, got one whose update fails (missing 1 required keyword-only argument: 'value')
    """
    try:
        state = jax.eval_shape(optimizer.init, shapes)
        hoist(optimizer.update, shapes, state, shapes)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        told = str(error).strip().splitlines()[0].split("() ")[-1]
        expected = "an optax optimizer whose update needs only a gradient, its state and the parameters"
        raise ValueError(checks.message(name, f"one whose update fails ({told})", expected)) from error


def fingerprint(hoisted: Hoisted, constants: tuple[Any, ...]) -> str:
    """Returns a hash of a hoisted function and its constants: the same in every process."""
    content = hashlib.sha256(hoisted.text.encode())
    for constant in constants:
        content.update(plain(constant).tobytes())
    return content.hexdigest()
