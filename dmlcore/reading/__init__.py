"""Logs of tasks that other systems recorded: what they say, what was assumed, and what is probably wrong."""

from dmlcore.reading.log import TaskLog, read_tasks

__all__ = ["TaskLog", "read_tasks"]
