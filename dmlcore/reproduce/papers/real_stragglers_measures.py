"""What notebooks/08_real_stragglers.ipynb measures: recorded jobs, clusters made of them, and what they predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import dmlcore as dml
from dmlcore.reading.pipeline import BACKWARD, FORWARD, Operation, Pipeline
from dmlcore.units import quantity

MODEL = 6_738_415_616 * 2  # bytes of Llama 2 7B in bfloat16, as its weights are published
# Results that the authors published with the jobs: result-, mw- and ms-*.json of their repository.
SLOWDOWN, SLOWEST, LAST = "slowdown", "slowest workers", "last stage"
PUBLISHED = {
    "AR": {SLOWDOWN: 1.97305, SLOWEST: 1.00170, LAST: -0.00121},
    "SE": {SLOWDOWN: 1.53736, SLOWEST: 0.02506, LAST: 0.68771},
}
