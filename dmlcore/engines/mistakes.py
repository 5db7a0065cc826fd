"""The errors for wrong decisions of a user's own policy, with their texts in `mistakes.toml`."""

from collections.abc import Sequence
from typing import Any

from dmlcore import checks, files
from dmlcore.types import Policy

TEXTS = files.table(__file__, "mistakes")
DECISION = "a state and a Decision, with lists of (worker, clock, weight) to apply and of Start to start"


def error(kind: str, policy: Policy, **facts: Any) -> Exception:
    """Returns the error of a kind, a name in `mistakes.toml`, with these facts in its text."""
    wrong = kind in TEXTS["wrong"]
    text = TEXTS["wrong" if wrong else "endless"][kind].format(policy=policy.name, **facts)
    return ValueError(text) if wrong else RuntimeError(text)


ENTRIES = {
    "apply": ("worker", "clock", "weight"),
    "drop": ("worker", "clock"),
    "cancel": ("worker",),
    "start": ("worker", "batch_size", "clock"),
}


def check_parts(policy: Policy, decision: tuple[Any, ...]) -> None:
    """Raises ValueError for the first part of a decision that has a wrong type.

    It is called only after a decision failed, because checking every decision would take longer than
    simulating it.
    """
    for (part, fields), entries in zip(ENTRIES.items(), decision, strict=False):
        name = f"{policy.name}, {part}"
        for number, entry in enumerate(checks.listed(name, entries)):
            own = f"{name}[{number}]"
            values = (entry,) if len(fields) == 1 else entry
            if not isinstance(values, Sequence) or len(values) != len(fields):
                kind = "Start" if part == "start" else ""
                checks.fail(own, entry, f"{kind}({', '.join(fields)})")
            for field, value in zip(fields, values, strict=True):
                if field == "weight":
                    checks.real(f"{own}, {field}", value)
                elif value is not None or part != "start" or field == "worker":
                    checks.integer(f"{own}, {field}", value, low=0)
