"""A daemon thread that samples while somebody measures, and ends soon after nobody does."""

import threading
import time
import weakref
from collections.abc import Callable

# The thread outlives the last window by this long, so that a window per frame does not start a thread per
# frame.
LINGER_S = 0.3


class Poller:
    """Calls a method every `period_s` while it is held.

    The thread knows the method's object only weakly: a meter that is dropped takes its thread with it. No
    signal handlers, no global state; it may be used from any thread and after a fork.

    Args:
        task: A bound method that does not raise.
        period_s: Seconds from one call to the next.
        name: The thread's name.
    """

    def __init__(self, task: Callable[[], object], period_s: float, name: str) -> None:
        self.period_s = period_s
        self._task = weakref.WeakMethod(task)
        self._name = name
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._holders = 0
        self._released_at = 0.0
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def hold(self) -> None:
        """Keep sampling until the matching `release`; starts the thread where there is none."""
        with self._lock:
            self._holders += 1
            if not self.is_running and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def release(self) -> None:
        """Undo one `hold`; after the last one the thread ends within twice `LINGER_S`."""
        with self._lock:
            self._holders -= 1
            self._released_at = time.monotonic()

    def close(self) -> None:
        """End the thread and wait for it."""
        self._closed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while self._wait():
            task = self._task()
            if task is None:
                return
            task()
            del task

    def _wait(self) -> bool:
        """Let one period pass; False when the thread should end."""
        deadline = time.monotonic() + self.period_s
        while (left_s := deadline - time.monotonic()) > 0:
            if self._closed.wait(min(left_s, LINGER_S)) or self._task() is None or self._lapsed():
                return False
        return True

    def _lapsed(self) -> bool:
        with self._lock:
            if self._holders > 0 or time.monotonic() - self._released_at < LINGER_S:
                return False
            self._thread = None  # under the lock: a hold() from now on starts a new thread
            return True
