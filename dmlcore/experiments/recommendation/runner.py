"""Runs of a recommendation: with frequent evaluations, within a budget, and until Ctrl-C."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dmlcore.experiments.comparison import compare
from dmlcore.experiments.recommendation.question import Question
from dmlcore.methods.policies import bsp
from dmlcore.types import Method

LOOKS = 32  # about how many evaluations of the metric until the target
LONGEST = 4.0  # longest run, as a multiple of the best time to the target so far
TIMES = 3  # how often runs are made longer until a run reaches the target


@dataclass
class Stopwatch:
    """Seconds of computing on this machine.

    Args:
        budget: the number of seconds allowed.
        before: seconds that an earlier call has spent, from which this one continues.
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
    """Makes runs of methods for a question, with about equally many evaluations per second of cluster time.

    Args:
        question: problem, cluster and target.
        stopwatch: Ctrl-C sets its `interrupted`.
        about: seconds of cluster time in which a good run reaches the target.
        seed: of the simulation that counts a method's updates.
        advance: called with the number of finished runs.
        made: number of finished runs.
    """

    question: Question
    stopwatch: Stopwatch
    about: float
    seed: int
    advance: Callable[[int], None] = lambda number: None
    made: int = 0
    _counted: dict[str, int] = field(default_factory=dict)

    def interval(self, method: Method) -> int:
        """Returns the updates between two evaluations, a power of two so that few programs are compiled.

        For a method that watches its training it is that of BSP, because its updates are not known before.
        """
        name = str(method._replace(optimizer=None))
        if name not in self._counted:
            counted = Method(bsp()) if method.policy.on_observation is not None else method
            made = len(self.question.timeline(counted, seconds=self.about, seed=self.seed).updates)
            self._counted[name] = 2 ** int(math.log2(max(made / LOOKS, 1)))
        return self._counted[name]

    @property
    def per_run(self) -> float:
        """Seconds of computing per run so far."""
        return self.stopwatch.spent / max(self.made, 1)

    def runs(
        self, methods: Mapping[str, Method], seeds: Mapping[str, Sequence[int]], seconds: float
    ) -> pd.DataFrame | None:
        """Returns histories; after Ctrl-C, the finished ones, or None.

        Args:
            methods: name -> method with its optimizer.
            seeds: name -> seeds of its runs.
            seconds: length of a run in cluster time.
        """
        parts = []
        try:
            together: dict[tuple[int, tuple[int, ...]], dict[str, Method]] = {}
            for name, method in methods.items():
                together.setdefault((self.interval(method), tuple(seeds[name])), {})[name] = method
            for (interval, some), each in together.items():
                made = self._compare(each, some, self.question.options(seconds, interval))
                parts.append(made)
                self.made += len(each) * len(some)
                self.advance(len(each) * len(some))
                if made.attrs["interrupted"]:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.stopwatch.interrupted = True
        return pd.concat(parts, ignore_index=True) if parts else None

    def _compare(self, methods: Any, seeds: Sequence[int], options: dict[str, Any]) -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "interrupted")
            warnings.filterwarnings("ignore", ".*no update within")  # the table says "not reached"
            return compare(
                methods, self.question.problem, self.question.cluster, None, seeds=seeds, **options
            )

    def until_reached(self, methods: Mapping[str, Method], seeds: Sequence[int]) -> pd.DataFrame:
        """Returns histories of `LONGEST` times the best median; longer ones if no run reaches the target.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        seconds = LONGEST * self.about
        times = 1
        while True:
            runs = self.runs(methods, dict.fromkeys(methods, seeds), seconds)
            if runs is None or self.stopwatch.interrupted:
                raise KeyboardInterrupt
            least = float(self.question.measured(runs)["seconds"].groupby("method").median().min())
            if LONGEST * least <= seconds or times == TIMES:
                return runs
            seconds, times = LONGEST * (least if math.isfinite(least) else seconds), times + 1
