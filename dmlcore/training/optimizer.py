"""Optimizers whose numbers are inputs, so that a new learning rate compiles nothing anew.

`optax.sgd(0.1)` and `optax.sgd(0.2)` are different closures, and a closure is all that `jax.jit` can compare.
Traced, both are the same function but for a literal. `hoist` turns such literals into inputs and compares
functions by their text. `optax.inject_hyperparams` cannot do this: it wraps the factory and its arguments,
while users hand over what the factory returned, which may be a chain with schedules.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core


class Hoisted:
    """A traced function whose scalar literals and captured arrays are inputs.

    Equal functions compare and hash as equal, so that they share one compilation as static arguments of a
    jitted function.
    """

    def __init__(self, closed: core.ClosedJaxpr, in_tree: Any, out_tree: Any):
        self._equations, self._outputs = closed.jaxpr.eqns, closed.jaxpr.outvars
        self._captured, self._inputs = closed.jaxpr.constvars, closed.jaxpr.invars
        self._in_tree, self._out_tree = in_tree, out_tree
        self.only_scales = all(e.primitive.name == "mul" for e in self._equations)  # as plain SGD does
        self.text = self._spell()
        self._hash = hash(self.text)

    def __call__(self, constants: tuple[Any, ...], *args: Any) -> Any:
        """Evaluates the function, under any of JAX's transformations."""
        leaves, tree = jax.tree.flatten(args)
        if tree != self._in_tree:
            raise TypeError(f"arguments of structure {tree}, traced with {self._in_tree}")
        rest = iter(constants)
        values = dict(zip(self._captured, rest, strict=False)) | dict(zip(self._inputs, leaves, strict=True))

        def read(atom: Any) -> Any:
            return (
                next(rest)
                if is_hoisted(atom)
                else atom.val
                if isinstance(atom, core.Literal)
                else values[atom]
            )

        for equation in self._equations:
            operands = [read(atom) for atom in equation.invars]
            parameters = equation.primitive.get_bind_params(equation.params)
            results = equation.primitive.bind(*operands, **parameters)
            several = results if equation.primitive.multiple_results else [results]
            values.update(zip(equation.outvars, several, strict=True))
        return jax.tree.unflatten(self._out_tree, [read(atom) for atom in self._outputs])

    def _spell(self) -> str:
        names: dict[Any, int] = {}

        def name(atom: Any) -> str:
            if isinstance(atom, core.Literal):
                return f"#{atom.aval}" if is_hoisted(atom) else repr(atom)
            return f"{names.setdefault(atom, len(names))}:{atom.aval}"

        lines = [f"{[name(v) for v in self._captured]} {[name(v) for v in self._inputs]}"]
        for e in self._equations:
            lines.append(
                f"{[name(v) for v in e.invars]} {e.primitive} {e.params} {[name(v) for v in e.outvars]}"
            )
            lines += captured(e.params)
        return "\n".join(
            [*lines, str([name(v) for v in self._outputs]), str(self._in_tree), str(self._out_tree)]
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hoisted) and self.text == other.text


def captured(parameters: Any) -> list[str]:
    """Returns the arrays that nested functions hold, in full: the text only shows their shapes."""
    found = []
    for value in jax.tree.leaves(parameters, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
        if hasattr(value, "eqns"):
            found += [np.asarray(const).tobytes().hex() for const in getattr(value, "consts", ())]
            found += [text for equation in value.eqns for text in captured(equation.params)]
    return found


def is_hoisted(atom: Any) -> bool:
    """Whether an operand is a floating scalar literal."""
    if not isinstance(atom, core.Literal):
        return False
    aval: Any = atom.aval
    return aval.shape == () and np.issubdtype(aval.dtype, np.inexact)


def hoist(function: Callable[..., Any], *args: Any) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    """Traces `function` and takes out its floating scalar literals and captured arrays.

    Guarantee: `hoisted(constants, *args)` computes what `function(*args)` does, and two functions that differ
    in such constants alone are equal when hoisted. Literals inside nested jitted functions and control flow
    stay.

    Args:
        function: pure function of pytrees of arrays.
        *args: example arguments, arrays or `jax.ShapeDtypeStruct`.

    Returns:
        The hoisted function, and its constants.

    Example:
        >>> one, (c,) = hoist(lambda x: 0.5 * x, np.float32(1))
        >>> two, _ = hoist(lambda x: 0.25 * x, np.float32(1))
        >>> one == two, float(c), float(two((c,), np.float32(8)))
        (True, 0.5, 4.0)
    """
    leaves, structure = jax.tree.flatten(args)
    shapes = tuple(jax.typeof(leaf) for leaf in leaves)
    real = str(jax.dtypes.canonicalize_dtype(float))  # types of intermediate values may follow from it
    return _hoist(function, structure, shapes, real)


@functools.lru_cache(maxsize=128)  # to trace an optimizer takes longer than to run it for a hundred steps
def _hoist(
    function: Callable[..., Any], structure: Any, shapes: tuple[Any, ...], real: str
) -> tuple[Hoisted, tuple[np.ndarray, ...]]:
    inputs = [jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type) for each in shapes]
    args = jax.tree.unflatten(structure, inputs)
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    atoms: list[Any] = [atom for equation in closed.jaxpr.eqns for atom in equation.invars]
    atoms += closed.jaxpr.outvars
    literals = [np.asarray(a.val, a.aval.dtype) for a in atoms if is_hoisted(a)]
    constants = (*map(np.asarray, closed.consts), *literals)
    return Hoisted(closed, structure, jax.tree.structure(shape)), constants


def fingerprint(hoisted: Hoisted, constants: tuple[Any, ...]) -> str:
    """Returns a hash of a hoisted function and its constants: the same in every process."""
    content = hashlib.sha256(hoisted.text.encode())
    for constant in constants:
        content.update(np.asarray(constant).tobytes())
    return content.hexdigest()
