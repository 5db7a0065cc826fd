"""`python -m dmlcore.reproduce.claims figures/ssp/claims.json` prints a ledger's table, as in README.md."""

import sys
from pathlib import Path

from dmlcore.reproduce.claims import markdown, read

if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(markdown(read(Path(name)).claims))
