"""What was measured for each claim of `adaptive_sync`, and why: written after the run."""

FINDINGS: dict[str, str] = {}
