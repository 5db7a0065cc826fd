"""Programs that are killed, and runs that are interrupted, in the middle."""

import signal
import time

from dmlcore.training.checkpoints import Checkpoints


def cut_at_a_checkpoint(monkeypatch):
    """Interrupts a run when it has saved two checkpoints, one at every look; returns the steps of all."""
    save, saved = Checkpoints.save, []

    def cut(checkpoints, step, *rest):
        save(checkpoints, step, *rest)
        saved.append(step)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", cut)
    monkeypatch.setattr(Checkpoints, "due", lambda checkpoints: True)
    return saved


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
