"""Processes that measure architectures, each of which may die or hang without ending the survey.

Workers are forked from one process that has imported the library, so that it is in memory once and a new worker
costs nothing; where processes cannot be forked they are started anew. A worker that dies, or takes too long,
costs the architecture that it was at. Workers retire now and then, to give back what they hoard. When the process
that holds the survey dies, however it dies, its workers end with it.
"""

import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from gearshift.profiler.survey.libraries import Installed
from gearshift.profiler.survey.row import Row, failed, row_from

TASKS_OF_A_WORKER = 250
LONGEST_START_S = 300.0
"""How long a worker may take until it has imported the library, which is in no architecture's time."""
LONGEST_SILENCE_S = 0.5
"""How often a time limit is looked at."""

Clock = Callable[[], float]
Ended = Callable[[Row], None]


@dataclass(slots=True, kw_only=True)
class _Worker:
    """A process, our end of its pipe, and what it is at."""

    process: BaseProcess
    pipe: Connection
    name: str | None = None
    since: float = 0.0
    tasks: int = 0
    is_ready: bool = False


def measure_all(
    installed: Installed,
    names: Sequence[str],
    ended: Ended,
    *,
    workers: int,
    limit_s: float,
    clock: Clock = time.monotonic,
) -> None:
    """Measure architectures in parallel.

    Args:
        installed: Their library.
        names: Which.
        ended: Given every row as it ends, in this process, in no fixed order.
        workers: How many processes.
        limit_s: How long one architecture may take, by the clock on the wall.
        clock: Seconds.
    """
    with _crew(installed, min(workers, len(names))) as crew:
        waiting = deque(names)
        while waiting or any(worker.name is not None for worker in crew):
            for place, worker in enumerate(crew):
                if worker.name is None and waiting:
                    crew[place] = _given(installed, worker, waiting.popleft(), clock())
            _wait_for(crew)
            for worker in crew:
                if worker.name is not None and (row := _result(worker, limit_s, clock())) is not None:
                    worker.name = None
                    ended(row)


def _given(installed: Installed, worker: _Worker, name: str, now: float) -> _Worker:
    """Give a worker an architecture; one that has died, or has served long enough, is replaced first."""
    if worker.tasks >= TASKS_OF_A_WORKER or not worker.process.is_alive():
        _end(worker)
        worker = _hired(installed)
    worker.name, worker.since, worker.tasks = name, now, worker.tasks + 1
    with suppress(OSError):  # it has just died; `_result` finds out
        worker.pipe.send(name)
    return worker


def _wait_for(crew: Sequence[_Worker]) -> None:
    busy = [worker for worker in crew if worker.name is not None]
    wait([thing for worker in busy for thing in (worker.pipe, worker.process.sentinel)], LONGEST_SILENCE_S)


def _result(worker: _Worker, limit_s: float, now: float) -> Row | None:
    """The row of what a worker is at, if that has ended in one way or another."""
    name = worker.name or ""
    try:
        if worker.pipe.poll():
            return _received(worker, now)
    except (EOFError, OSError):  # it died
        worker.process.join()
    if not worker.process.is_alive():
        return failed(name, f"the process that measured it {_how_it_died(worker.process.exitcode)}")
    limit_s = limit_s if worker.is_ready else LONGEST_START_S
    if now - worker.since > limit_s:
        worker.process.kill()
        worker.process.join()
        return failed(name, f"it took longer than {limit_s:g} s and was stopped")
    return None


def _received(worker: _Worker, now: float) -> Row | None:
    """A row; or the sign that a worker has started, and is at its first architecture from now on."""
    values = worker.pipe.recv()
    if values is not None:
        return row_from(values)
    worker.is_ready, worker.since = True, now
    return None


def _how_it_died(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    advice = "; memory may be short" if name == "SIGKILL" else ""
    return f"was ended by {name}{advice}"


@contextmanager
def _crew(installed: Installed, size: int) -> Iterator[list[_Worker]]:
    crew: list[_Worker] = []
    try:
        crew.extend(_hired(installed) for _ in range(size))
        yield crew
    finally:
        for worker in crew:
            _end(worker)


def _hired(installed: Installed) -> _Worker:
    context: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload([installed.module, __name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(installed, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process=process, pipe=ours)


def _end(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()  # it holds nothing that is not thrown away
    worker.process.join()


def _work(installed: Installed, pipe: Connection) -> None:
    """A worker's life: names in, rows out, until the pipe is closed."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    logging.disable()  # what libraries say of configurations without weights helps nobody
    _keep_stdout_clean()
    _stay_offline()
    # Imported here: these need torch, which the parent may do without.
    import torch

    from gearshift.profiler.survey.measure import measure
    from gearshift.profiler.survey.remembered import RememberedShapes

    torch.set_num_threads(1)
    library, shapes = installed.open(), RememberedShapes()
    gc.freeze()  # what is shared with the process that this was forked from stays shared
    try:
        pipe.send(None)
        while True:
            pipe.send(measure(library, pipe.recv(), shapes).to_dict())
    except (EOFError, OSError):  # the parent has gone
        return


def _end_with_the_parent() -> None:
    """Wait until the process that holds the survey is gone, and end this one at once, whatever it is at.

    A closed pipe is noticed only between two architectures. The process that this was forked from is no sign
    either: it lives for as long as any of its workers.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _keep_stdout_clean() -> None:
    """Let what libraries print go nowhere: stdout carries the survey's data."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _stay_offline() -> None:
    """Refuse every connection to another machine: a survey downloads nothing.

    The error is none of the network's, which libraries would wait for and try again.
    """

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        is_local = event == "socket.connect" and args[0].family == getattr(socket, "AF_UNIX", None)
        if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname") and not is_local:
            raise RuntimeError("it wants to download something, which a survey never does")

    sys.addaudithook(refuse)
