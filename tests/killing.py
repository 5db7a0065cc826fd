"""Programs that are killed in the middle of their runs."""

import signal
import time


def kill_after(process, folder, runs):
    """Kills a program with SIGKILL when it has kept so many finished runs in a folder."""
    try:
        limit = time.monotonic() + 600
        while not folder.exists() or len([*folder.glob("[!.]*.parquet")]) < runs:
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
