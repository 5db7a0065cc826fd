"""`python -m dmlcore.claims figures/ssp/claims.json` prints the table that README.md shows of a ledger."""

import sys
from pathlib import Path

from dmlcore.claims import markdown, read

if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(markdown(read(Path(name)).claims))
