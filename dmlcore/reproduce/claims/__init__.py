"""The claims ledger: claims of papers, declared before the run, and outcomes that follow from a rule.

A claim names a metric, the range that the metric must be in, and its regime: the settings in which it must be
there. Runs with several seeds give samples. In each setting the claim `holds`, `fails` or is `undecided`, by
the interval of the samples' median (`metrics.decide`). The verdict is `reproduced` if it holds in all
settings, `in part` if in some, `not reproduced` if it fails in some and holds in none, and else `undecided`.

>>> claim = Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract", data="any",
...               metric="time of BSP / time of SSP", expected=(1, None), unit="x", regime="slow episodes")
>>> result = judge(claim, [1.3, 1.5, 1.4, 1.2, 1.4, 1.1, 1.3, 1.6], measured_on="digits")
>>> result.verdict, result.parts[0].measured, result.parts[0].interval
('reproduced', 1.35, (1.1, 1.6))
"""

from dmlcore.provenance import hardware, versions
from dmlcore.reproduce.claims.ledger import LEDGER, known, merge, read, recheck, write
from dmlcore.reproduce.claims.model import ANY, NONE, Claim, Ledger, Made, Part, Result, Source, Verdict
from dmlcore.reproduce.claims.rules import combine, judge, outcome, repeats, settings, tallies, told
from dmlcore.reproduce.claims.show import counted, expectation, frame, interval, markdown, table, tally

__all__ = ["ANY", "LEDGER", "NONE", "Claim", "Ledger", "Made", "Part", "Result", "Source", "Verdict",
           "combine", "counted", "expectation", "frame", "hardware", "interval", "judge", "known", "markdown",
           "merge", "outcome", "read", "recheck", "repeats", "settings", "table", "tallies", "tally",
           "told", "versions", "write"]  # fmt: skip
