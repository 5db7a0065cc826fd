"""The claims ledger: what a paper says, declared before the run, and the verdict that follows by rule.

A claim names a metric and the range it must fall in. Runs with several seeds give samples of the metric;
their median and its bootstrap interval are held against the range.

>>> claim = Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract",
...               metric="time of BSP / time of SSP", expected=(1, None), unit="x")
>>> result = judge(claim, [1.3, 1.5, 1.4])
>>> result.measured, result.interval, result.verdict
(1.4, (1.3, 1.5), 'reproduced')
"""

from dmlcore.provenance import hardware, versions
from dmlcore.reproduce.claims.ledger import read, recheck, write
from dmlcore.reproduce.claims.model import Claim, Ledger, Part, Result, Verdict
from dmlcore.reproduce.claims.rules import combine, judge, rule
from dmlcore.reproduce.claims.show import expectation, frame, interval, markdown, table

__all__ = ["Claim", "Ledger", "Part", "Result", "Verdict", "combine", "expectation", "frame",
           "hardware", "interval", "judge", "markdown", "read", "recheck", "rule", "table",
           "versions", "write"]  # fmt: skip
