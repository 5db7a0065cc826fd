"""The claims ledger: claims of papers, declared before the run, and verdicts that follow from a rule.

A claim names a metric, the data that it is about, and the range that the metric must be in. Runs with several
seeds give samples. The verdict is `reproduced` if all of them are in the range, `not reproduced` if none is,
and `mixed` otherwise.

>>> claim = Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract", data="any",
...               metric="time of BSP / time of SSP", expected=(1, None), unit="x")
>>> result = judge(claim, [1.3, 1.5, 1.4], measured_on="digits")
>>> result.measured, result.spread, result.verdict
(1.4, (1.3, 1.5), 'reproduced')
"""

from dmlcore.provenance import hardware, versions
from dmlcore.reproduce.claims.ledger import read, recheck, write
from dmlcore.reproduce.claims.model import ANY, NONE, Claim, Ledger, Part, Result, Source, Verdict
from dmlcore.reproduce.claims.rules import combine, judge, rule
from dmlcore.reproduce.claims.show import expectation, frame, markdown, remark, spread, table, tally
from dmlcore.reproduce.claims.tally import repeats, standing, tallies, told

__all__ = ["ANY", "NONE", "Claim", "Ledger", "Part", "Result", "Source", "Verdict", "combine",
           "expectation", "frame", "hardware", "judge", "markdown", "read", "recheck", "remark",
           "repeats", "rule", "spread", "standing", "table", "tallies", "tally", "told",
           "versions", "write"]  # fmt: skip
