"""`python -m dmlcore.reproduce.claims figures/*/claims.json` prints tables and tally in Markdown."""

import sys
from pathlib import Path

from dmlcore.reproduce.claims import markdown, read, tally

if __name__ == "__main__":
    ledgers = [read(Path(name)) for name in sys.argv[1:]]
    for ledger in ledgers:
        sys.stdout.write(f"{markdown(ledger.claims)}\n")
    sys.stdout.write(tally([result for ledger in ledgers for result in ledger.claims]))
