"""The times of the parameter server's processor and link, which all workers share."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from dmlcore import checks
from dmlcore.cluster.jitter import resolve_jitter, show_jitter

LEAST_BANDWIDTH = 1e-9  # bytes/s: smaller ones could make the time of a transfer overflow
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "jitter": resolve_jitter,
    "bandwidth_bytes_per_second": partial(checks.real, low=LEAST_BANDWIDTH),
    **dict.fromkeys(("seconds_per_push", "seconds_per_pull", "seconds_per_update"), checks.not_negative),
    "shards": checks.at_least(1),
    "sharing": checks.one_of("fifo", "fair"),  # how transfers share the server's link
}


@dataclass(frozen=True)
class ParameterServer:
    """The server that `Cluster.with_server` adds; its arguments are explained there.

    Args:
        bandwidth_bytes_per_second: bandwidth of the link in each direction, bytes/s.
        seconds_per_push: processor time to read a push, seconds.
        seconds_per_pull: processor time to reply to a pull, seconds.
        seconds_per_update: processor time of an update, seconds.
        shards: number of servers that hold equal parts of the parameters.
        sharing: "fifo" or "fair".
        jitter: random multiplier of these times. None: they are constant.

    Raises:
        ValueError: an argument is out of range; the message names that of `Cluster.with_server`.
    """

    bandwidth_bytes_per_second: float = math.inf
    seconds_per_push: float = 0.0
    seconds_per_pull: float = 0.0
    seconds_per_update: float = 0.0
    shards: int = 1
    sharing: str = "fifo"
    jitter: Any = None

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            value = check(name.removesuffix("_bytes_per_second"), getattr(self, name))
            object.__setattr__(self, name, value)
        if self.sharing == "fair" and self.bandwidth_bytes_per_second == math.inf:
            expected = "'fifo' (the link's bandwidth is infinite)"
            checks.fail("sharing", self.sharing, expected, "a finite bandwidth=")

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """Returns the server of a `describe()`; without its jitter, since descriptions hold only its name."""
        given: dict[str, Any] = {**description, "jitter": None}
        if given["bandwidth_bytes_per_second"] is None:
            given["bandwidth_bytes_per_second"] = math.inf
        return cls(**given)

    @property
    def takes_time(self) -> bool:
        """Whether any of the server's work takes time."""
        seconds = self.seconds_per_push + self.seconds_per_pull + self.seconds_per_update
        return seconds > 0 or self.bandwidth_bytes_per_second < math.inf

    def seconds(self, num_parameters: int, pull_bytes: int, push_bytes: int) -> dict[str, float]:
        """Returns the mean seconds of each kind of work, for the shard with the largest part of a message.

        Args:
            num_parameters: number of parameters, split into the shards; 0: not known, split evenly.
            pull_bytes: bytes of a pull.
            push_bytes: bytes of a push.

        Returns:
            A dictionary with the keys `link_in`, `push`, `update`, `pull` and `link_out`.
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
        """Raises ValueError if there are fewer parameters than shards, unless there are no parameters."""
        if num_parameters and self.shards > num_parameters:
            checks.fail("shards", self.shards, f"at most {num_parameters} (the number of parameters)")

    def describe(self) -> dict[str, Any]:
        """Returns the server as plain JSON values."""
        bandwidth = self.bandwidth_bytes_per_second
        return vars(self) | {
            "bandwidth_bytes_per_second": None if bandwidth == math.inf else bandwidth,
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
