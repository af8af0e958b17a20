"""How a job waits that cannot go on: what its controller burns meanwhile, and whether it can be interrupted."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass

import psutil

from chaos.history import Event, HistoryWriter
from chaos.watch import Watch

ENDS_S = 30.0
"""How long a training script may take to end after SIGINT before it is killed."""

NOTICES_S = 60.0
"""How long the controller may take to notice that its group is gone, before the look at its waiting begins anyway."""


@dataclass
class Waiting:
    """Counts the controller's changes of state; ``measure`` lets time pass and tells what it cost."""

    writer: HistoryWriter
    controller: int = 0
    changes: int = 0
    state: str = ""

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if event.kind == "controller.start":
            self.controller = event.pid
        elif event.kind == "controller.state":
            self.changes += 1
            self.state = event.data["to"]

    def measure(self, watch: Watch, seconds: float) -> None:
        """Look on for so many seconds; record the controller's share of one core, and its changes of state.

        The look begins when the controller has left RUNNING: until then it has not noticed that it must wait.
        The share is None when the controller is gone, or the look was cut short.
        """
        limit = time.monotonic() + NOTICES_S
        watch.until(lambda: self.state != "RUNNING" or time.monotonic() > limit)
        changes, begin = self.changes, time.monotonic()
        before = self._cpu_s()
        whole = watch.until(lambda: time.monotonic() - begin >= seconds)
        spent, after = time.monotonic() - begin, self._cpu_s()
        share = (after - before) / spent if whole and before is not None and after is not None else None
        data = {"seconds": spent, "cpu_share": share, "states": self.changes - changes}
        self.writer.emit("probe.waiting", data=data)

    def _cpu_s(self) -> float | None:
        try:
            times = psutil.Process(self.controller).cpu_times()
        except psutil.Error:
            return None
        return float(times.user + times.system)


def interrupt(driver: subprocess.Popen[bytes], watch: Watch, writer: HistoryWriter) -> None:
    """Send the training script SIGINT, as Ctrl-C does, and record how long it took to end; then kill it.

    Nothing is done when it has ended already; nothing is recorded when the deadline of the run comes first.
    """
    if driver.poll() is not None:
        return
    begin = time.monotonic()
    driver.send_signal(signal.SIGINT)
    watch.until(lambda: driver.poll() is not None or time.monotonic() - begin >= ENDS_S)
    ended = driver.poll() is not None
    seconds = time.monotonic() - begin if ended else None
    if ended or not watch.expired:
        writer.emit("workload.interrupted", data={"signal": "SIGINT", "seconds": seconds, "waited_s": ENDS_S})
    driver.kill()
