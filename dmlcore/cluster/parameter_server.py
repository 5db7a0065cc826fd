"""The parameter server: how long its processor and its link take, which all workers share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmlcore import checks
from dmlcore.cluster.jitter import resolve_jitter, show_jitter

LEAST_BANDWIDTH = 1e-9  # bytes per second: a transfer takes a time that numbers can hold
SHARING = "fifo", "fair"  # how transfers share its link


@dataclass(frozen=True)
class ParameterServer:
    """A server of `Cluster.with_server`, see there."""

    bandwidth_bytes_per_second: float = math.inf
    seconds_per_push: float = 0.0
    seconds_per_pull: float = 0.0
    seconds_per_update: float = 0.0
    shards: int = 1
    sharing: str = "fifo"
    jitter: Any = None

    @classmethod
    def checked(
        cls,
        bandwidth: float,
        seconds_per_push: float,
        seconds_per_pull: float,
        seconds_per_update: float,
        shards: int,
        sharing: str,
        jitter: Any,
    ) -> ParameterServer:
        """Returns the server that these arguments describe; ValueError names the one that is wrong."""
        jitter = resolve_jitter("jitter", jitter)
        if not isinstance(sharing, str) or sharing not in SHARING:
            checks.fail("sharing", sharing, " or ".join(map(repr, SHARING)))
        if sharing == "fair" and bandwidth == math.inf:
            checks.fail("sharing", sharing, "'fifo' where the link has infinite bandwidth; give bandwidth=")
        return cls(
            checks.real("bandwidth", bandwidth, low=LEAST_BANDWIDTH),
            checks.not_negative("seconds_per_push", seconds_per_push),
            checks.not_negative("seconds_per_pull", seconds_per_pull),
            checks.not_negative("seconds_per_update", seconds_per_update),
            checks.integer("shards", shards, low=1),
            sharing,
            jitter,
        )

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> ParameterServer:
        """Returns the server that `describe` said, without the jitter, of which only the name is kept."""
        bandwidth = description["bandwidth_bytes_per_second"]
        bandwidth = math.inf if bandwidth is None else bandwidth
        return cls(**{**description, "bandwidth_bytes_per_second": bandwidth, "jitter": None})

    @property
    def takes_time(self) -> bool:
        """Whether anything that it does takes time."""
        seconds = self.seconds_per_push + self.seconds_per_pull + self.seconds_per_update
        return seconds > 0 or self.bandwidth_bytes_per_second < math.inf

    def seconds(self, num_parameters: int, pull_bytes: int, push_bytes: int) -> dict[str, float]:
        """Returns the mean seconds of what it does about a message: the largest part that a shard gets of it.

        Args:
            num_parameters: numbers that the shards share; 0: not known, and shared evenly.
            pull_bytes, push_bytes: of a message.
        """
        shards, bandwidth = self.shards, self.bandwidth_bytes_per_second
        part = -(-num_parameters // shards) / num_parameters if num_parameters else 1 / shards
        return {
            "link_in": part * push_bytes / bandwidth,
            "push": part * self.seconds_per_push,
            "update": part * self.seconds_per_update,
            "pull": part * self.seconds_per_pull,
            "link_out": part * pull_bytes / bandwidth,
        }

    def check_shards(self, num_parameters: int) -> None:
        """Raises ValueError where there are fewer parameters than shards, unless there are none to send."""
        if num_parameters and self.shards > num_parameters:
            checks.fail("shards", self.shards, f"at most {num_parameters}, the number of parameters")

    def describe(self) -> dict[str, Any]:
        """Returns the server as plain JSON values."""
        bandwidth = self.bandwidth_bytes_per_second
        return {
            "bandwidth_bytes_per_second": None if bandwidth == math.inf else bandwidth,
            "seconds_per_push": self.seconds_per_push,
            "seconds_per_pull": self.seconds_per_pull,
            "seconds_per_update": self.seconds_per_update,
            "shards": self.shards,
            "sharing": self.sharing,
            "jitter": show_jitter(self.jitter),
        }

    def __str__(self) -> str:
        parts = [f"{self.bandwidth_bytes_per_second:.4g} B/s"] * (self.bandwidth_bytes_per_second < math.inf)
        for what in ("push", "pull", "update"):
            seconds = getattr(self, f"seconds_per_{what}")
            parts += [f"{seconds:.4g} s {'an' if what == 'update' else 'a'} {what}"] * (seconds > 0)
        parts += [f"{self.shards} shards"] * (self.shards > 1)
        parts += ["shared equally"] * (self.sharing == "fair")
        parts += [f"jitter={show_jitter(self.jitter)}"] * (self.jitter is not None)
        return f"server of {', '.join(parts)}"
