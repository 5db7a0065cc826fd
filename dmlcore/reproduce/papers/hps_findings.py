"""What was measured for each claim of `hps`, and why: written after the run. Numbers stand beside them."""

FINDINGS: dict[str, str] = {}
