"""How the runs of a recommendation are made: often enough looked at, within a budget, and until Ctrl-C."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dmlcore.experiments.comparison import compare
from dmlcore.experiments.recommendation.goal import Goal
from dmlcore.methods.policies import bsp
from dmlcore.types import Method

LOOKS = 32  # at the metric until the target, about
LONGEST = 4.0  # of a run, in times to the target of the best one so far: a longer one would not win
TIMES = 3  # how often runs are made longer, until a target is reached


@dataclass
class Clock:
    """Seconds of computing on this machine.

    Args:
        budget: how many there are.
        before: spent by an earlier call, which this one goes on from.
        interrupted: whether Ctrl-C was pressed.
    """

    budget: float
    before: float = 0.0
    interrupted: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return self.before + time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.budget - self.spent


@dataclass
class Runner:
    """Makes runs of methods towards a goal, each looked at about as often in the cluster's time.

    Args:
        goal: that they are to reach.
        clock: whose `interrupted` is set by Ctrl-C.
        about: seconds of the cluster's time in which a good run reaches the target.
        seed: on which a method's updates are counted.
        advance: is called with the number of runs that were made.
    """

    goal: Goal
    clock: Clock
    about: float
    seed: int
    advance: Callable[[int], None] = lambda number: None
    _counted: dict[str, int] = field(default_factory=dict)

    def interval(self, method: Method) -> int:
        """Returns the updates between two looks, a power of two, so that few programs differ.

        For a method that watches its training these are as many as for BSP, since its updates are not known.
        """
        name = str(method._replace(optimizer=None))
        if name not in self._counted:
            counted = Method(bsp()) if method.policy.on_observation is not None else method
            made = len(self.goal.timeline(counted, seconds=self.about, seed=self.seed).updates)
            self._counted[name] = 2 ** int(math.log2(max(made / LOOKS, 1)))
        return self._counted[name]

    def runs(
        self, methods: Mapping[str, Method], seeds: Mapping[str, Sequence[int]], seconds: float
    ) -> pd.DataFrame | None:
        """Returns histories; after Ctrl-C, those that are finished, or None.

        Args:
            methods: with their optimizers, by name.
            seeds: of each.
            seconds: of the cluster's time, at most.
        """
        parts = []
        try:
            together: dict[tuple[int, tuple[int, ...]], dict[str, Method]] = {}
            for name, method in methods.items():
                together.setdefault((self.interval(method), tuple(seeds[name])), {})[name] = method
            for (interval, some), each in together.items():
                made = self._compare(each, some, self.goal.options(seconds, interval))
                parts.append(made)
                self.advance(len(each) * len(some))
                if made.attrs["interrupted"]:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.clock.interrupted = True
        return pd.concat(parts, ignore_index=True) if parts else None

    def _compare(self, methods: Any, seeds: Sequence[int], options: dict[str, Any]) -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "interrupted")
            return compare(methods, self.goal.problem, self.goal.cluster, None, seeds=seeds, **options)

    def until_reached(self, methods: Mapping[str, Method], seeds: Sequence[int]) -> pd.DataFrame:
        """Returns histories as long as `LONGEST` times the best median; longer ones, where none gets there.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        seconds = LONGEST * self.about
        times = 1
        while True:
            runs = self.runs(methods, dict.fromkeys(methods, seeds), seconds)
            if runs is None or self.clock.interrupted:
                raise KeyboardInterrupt
            least = float(self.goal.measured(runs)["seconds"].groupby("method").median().min())
            if LONGEST * least <= seconds or times == TIMES:
                return runs
            seconds, times = LONGEST * (least if math.isfinite(least) else seconds), times + 1
