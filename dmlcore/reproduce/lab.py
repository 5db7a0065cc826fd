"""JupyterLab with a token that no configuration file can remove: `python -m dmlcore.reproduce.lab`."""

import secrets
import sys

from jupyterlab.labapp import main

if __name__ == "__main__":
    # An argument stands above all files. It is made here, since others can read a process's command line.
    token = secrets.token_hex(24)
    sys.stderr.write(f"where no browser opens, log in with the token {token}\n")  # Jupyter does not show it
    sys.exit(main([*sys.argv[1:], f"--IdentityProvider.token={token}"]))
