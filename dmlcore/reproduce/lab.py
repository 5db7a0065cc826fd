"""JupyterLab with a token that no configuration file can remove: `python -m dmlcore.reproduce.lab`."""

import secrets
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Runs JupyterLab with these arguments and a new token, which it prints."""
    from jupyterlab import labapp

    # An argument overrides all configuration files. The token is made in this process, because other users
    # can read the command line of a process.
    token = secrets.token_hex(24)
    sys.stderr.write(f"If no browser opens, log in with the token {token}\n")  # Jupyter does not show it
    labapp.main([*arguments, f"--IdentityProvider.token={token}"])


if __name__ == "__main__":
    main(sys.argv[1:])
