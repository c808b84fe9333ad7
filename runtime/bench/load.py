"""Other programs that compute without a pause: real processes, ended with us whatever happens."""

import os
import subprocess
import sys

# Ends by itself when its parent is gone, so that not even a killed bench leaves a busy process behind.
_BUSY = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(200000):
        pass
"""


class CoRunners:
    """A number of busy processes that can be changed at any time; use as a context manager.

    Those that were ended are waited for only on leaving: a meter that counts the processor time of children
    gets to know of theirs when they are waited for, and would book all of it at one moment of the run.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._ended: list[subprocess.Popen[bytes]] = []

    @property
    def process_ids(self) -> list[int]:
        """Of the processes that run now."""
        return [process.pid for process in self._running]

    def set(self, count: int) -> None:
        """Start or end processes until `count` of them run."""
        while len(self._running) < count:
            self._running.append(_start())
        while len(self._running) > count:
            process = self._running.pop()
            process.kill()
            self._ended.append(process)

    def __enter__(self) -> "CoRunners":
        return self

    def __exit__(self, *_: object) -> None:
        self.set(0)
        while self._ended:
            self._ended.pop().wait()


def _start() -> subprocess.Popen[bytes]:
    """Start one in a session of its own, so that Ctrl-C reaches us alone, with no pipe held open."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BUSY, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
