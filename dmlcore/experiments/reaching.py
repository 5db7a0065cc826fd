"""Where a run reaches its target: among all its updates, however coarsely it was evaluated at first.

The metric of a noisy method crosses its target between two evaluations, and back again. So a coarse grid
makes such a method later than it is, up to a third, and a smooth one not at all. A run reaches its target
with the first of its updates whose parameters meet it. To find that update, a run is trained again and
evaluated after every update; if it has very many, where its evaluations have come near the target.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dmlcore.training.evaluation import is_accuracy

Evaluations = list[tuple[int, dict[str, Any]]]  # (update, metrics)

POINTS = 1000  # largest number of evaluations at one go: all updates of most runs, a stretch of long ones
NEAR = 4.0  # the target is near at this multiple of the largest deviation from the neighbours' mean
EDGE = 0.5  # a target that is reached in this first part of a stretch may have been reached before it


def resolved(
    coarse: Evaluations, until: Mapping[str, float], train: Callable[[Sequence[int]], Evaluations]
) -> Evaluations:
    """Returns the evaluations of a run up to its first update that reaches a target.

    Of more than `POINTS` updates, about so many are evaluated among which the target is near, and then all
    those between the last two. So a lone update that meets the target long before its neighbours do can be
    missed in a run that is so long.

    Args:
        coarse: evaluations from the start, ascending, up to the first that reaches a target, if one does.
        until: metric -> target.
        train: updates, ascending -> evaluations there, of training from the start, up to the first that
            reaches a target.

    Returns:
        Evaluations, ascending: coarse ones, then those of the stretch in which the target is near.
    """
    begin, end = near(coarse, until), coarse[-1][0]
    if begin is None or len(coarse) < 2:
        return coarse
    begin = 0 if end <= POINTS else begin
    found = coarse
    while True:
        marks = stretch(begin, end)
        fine = train(marks)
        found = [each for each in found if each[0] < marks[0]] + fine
        end = fine[-1][0]
        if begin == 0 or end > marks[0] + EDGE * (marks[-1] - marks[0]):
            break
        begin = max(0, begin - (marks[-1] - marks[0]))
    last = found[-2][0] if len(found) > 1 else end
    if end - last > 1:
        found = found[:-1] + train(stretch(last + 1, end))
    return found


def near(found: Evaluations, until: Mapping[str, float]) -> int | None:
    """Returns the last update before the target is near for the first time; None if it never is.

    >>> curve = [(update, {"loss": 10.0 - update + update % 2 / 10}) for update in range(10)]
    >>> near(curve, {"loss": 1.0}), near(curve, {"loss": -5.0})
    (8, None)
    """
    close = np.zeros(len(found), bool)
    for name, target in until.items():
        sign = -1 if is_accuracy(name) else 1
        above = np.array([sign * (float(metrics[name]) - target) for _, metrics in found])
        known = above[np.isfinite(above)]
        late = known[len(known) // 2 - 1 :] if len(known) >= 6 else known
        noise = np.abs(late[1:-1] - (late[2:] + late[:-2]) / 2)
        close |= above <= (NEAR * noise.max() if noise.size else np.inf)
    return found[max(int(close.argmax()) - 1, 0)][0] if close.any() else None


def stretch(begin: int, end: int) -> list[int]:
    """Returns the updates at which a stretch of a run is evaluated: all, or about `POINTS`.

    >>> stretch(2, 5), len(stretch(0, 10_000))
    ([2, 3, 4, 5], 1001)
    """
    return [*range(begin, end, max(1, -(-(end - begin) // POINTS))), end]
