"""Energy of a Jetson as the service of jetson-stats tells it, for machines where the rails cannot be read.

jetson-stats is under the AGPL: it is imported where it is installed, never required, and nothing of it is
here. Its `power` per rail is the product of one reading of voltage and current, cut to whole mW, renewed at
the service's own interval (one second by default); its `avg` is an exponentially weighted mean over an
unstated time, and is not used.
"""

import importlib
import queue
import threading
import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.base import Clock
from gearshift.profiler.meters.protocol import Precision
from gearshift.profiler.meters.sampled import PowerSample, SampledPowerMeter
from gearshift.units import watts_from_milliwatts

RELATIVE_ERROR = 0.05
SOCKET = Path("run/jtop.sock")
# Looks per interval of the service, and how many intervals may pass without news before its word is stale.
LOOKS_PER_INTERVAL = 2
STALE_INTERVALS = 3
SUM_OF_RAILS = "sum of rails"
REMEDY = "sudo pip3 install -U jetson-stats && sudo jtop --install-service"


class JtopMeter(SampledPowerMeter):
    """The energy of the board as the service totals it; `window.parts` gives the rails beside the total.

    Args:
        module: The `jtop` package or one that behaves like it; None imports it.
        root: Where `run` lies.
        clock: Monotonic seconds.
        background: Sample on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: The package or its service is missing, or tells no power.
    """

    def __init__(
        self,
        *,
        module: ModuleType | Any | None = None,
        root: Path = Path("/"),
        clock: Clock = time.perf_counter,
        background: bool = True,
    ) -> None:
        self._feed = _Feed(_import() if module is None else module, root, clock)
        self._seen: int | None = None
        try:
            total, interval_s = self._feed.total_name(), self._feed.interval_s
            period_s = interval_s / LOOKS_PER_INTERVAL
            super().__init__(
                name="jtop",
                source="measured:jtop",
                boundary=f"whole board as jetson-stats totals it ({total}), all processes; excluded: power supply",
                precision=Precision(
                    resolution_s=interval_s, relative=RELATIVE_ERROR, what="service interval", period_s=interval_s
                ),
                max_gap_s=STALE_INTERVALS * interval_s,
                clock=clock,
                period_s=period_s if background else None,
                notes=_notes(total),
            )
            trial = self.read()
            if trial.reason is not None:
                raise MeterUnavailableError(trial.reason)
        except MeterUnavailableError:
            self._feed.close()
            raise

    def sensor_value(self) -> Hashable:
        """How often the service has delivered."""
        return self._feed.latest()[1]

    def _sample_w(self) -> PowerSample:
        power, deliveries = self._feed.latest()
        fresh, self._seen = deliveries != self._seen, deliveries
        total = power.get("tot") or {}
        total_w = _watts(total)
        if total_w is None:
            raise MeterUnavailableError("jtop tells no total power: this board has no power monitor")
        rails = dict(power.get("rail") or {})
        return PowerSample(power_w=total_w, parts_w={name: _watts(rail) for name, rail in rails.items()}, fresh=fresh)

    def _give_back(self) -> None:
        self._feed.close()


class _Feed:
    """What the service told last. It delivers on a thread of its client."""

    def __init__(self, module: ModuleType | Any, root: Path, clock: Clock) -> None:
        if not (root / SOCKET).exists():
            raise MeterUnavailableError(f"the service of jtop does not run (no {root / SOCKET}): {REMEDY}")
        self._clock, self._lock = clock, threading.Lock()
        self._power: Mapping[str, Any] = {}
        self._deliveries, self._at_s = 0, clock()
        self._client = module.jtop()
        self._client.attach(self._take)
        try:
            self._client.start()
        except (module.JtopException, OSError, EOFError, queue.Empty) as error:
            self._client.close()
            words = " ".join(str(error).split()) or type(error).__name__
            raise MeterUnavailableError(f"the service of jtop does not answer: {words}: {REMEDY}") from error
        self.interval_s = float(self._client.interval)

    def latest(self) -> tuple[Mapping[str, Any], int]:
        """What was delivered last, and how many deliveries there have been.

        Raises:
            MeterUnavailableError: Nothing came for several intervals.
        """
        with self._lock:
            silent_s = self._clock() - self._at_s
            if silent_s > STALE_INTERVALS * self.interval_s:
                raise MeterUnavailableError(f"no news from the service of jtop for {silent_s:.3g} s: is it running?")
            return self._power, self._deliveries

    def total_name(self) -> str:
        """The rail that the service takes for the total, or "sum of rails"."""
        return str((self.latest()[0].get("tot") or {}).get("name", SUM_OF_RAILS))

    def close(self) -> None:
        """End the client's thread."""
        self._client.detach(self._take)
        self._client.close()

    def _take(self, client: Any) -> None:
        with self._lock:
            self._power, self._at_s = client.power, self._clock()
            self._deliveries += 1


def _watts(rail: Mapping[str, Any]) -> float | None:
    """Power of a rail; None where it is switched off or says nothing."""
    power_mw = rail.get("power")
    return watts_from_milliwatts(power_mw) if isinstance(power_mw, int | float) else None


def _notes(total: str) -> tuple[str, ...]:
    cut = "the service cuts readings to whole mW; its own `avg` (exponentially weighted) is not used"
    if total != SUM_OF_RAILS:
        return (cut,)
    return (cut, "partial: without an input rail the service adds up the rails that it knows")


def _import() -> Any:
    try:
        return importlib.import_module("jtop")
    except ImportError as error:
        raise MeterUnavailableError(f"jetson-stats is not installed ({error}): on a Jetson {REMEDY}") from error
