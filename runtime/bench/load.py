"""Other programs that compute without a pause: real processes, ended with us whatever happens."""

import subprocess
import sys

# Ends by itself when its parent is gone, so that not even a killed bench leaves a busy process behind.
_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(200000):
        pass
"""


class CoRunners:
    """A number of busy processes that can be changed at any time; use as a context manager."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def set(self, count: int) -> None:
        """Start or end processes until `count` of them run."""
        while len(self._processes) < count:
            self._processes.append(subprocess.Popen([sys.executable, "-c", _BUSY]))
        while len(self._processes) > count:
            process = self._processes.pop()
            process.kill()
            process.wait()

    def __enter__(self) -> "CoRunners":
        return self

    def __exit__(self, *_: object) -> None:
        self.set(0)
