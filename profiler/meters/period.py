"""How often a sensor really delivers: specifications say little, and drivers differ.

The sensor is looked at far more often than it should change; the pauses between changes are its period.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import pairwise

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.profiler.meters.base import BaseMeter, Clock

# Looks per expected period: the period comes out to about a twentieth of itself.
LOOKS_PER_PERIOD = 20
# Where nothing is specified. No sensor here is looked at more often than this.
SHORTEST_PAUSE_S = 5e-5
ENOUGH_CHANGES = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPeriod:
    """Time between the changes of a sensor.

    Attributes:
        meter: The meter's name.
        period_s: Median pause between changes, or None. A sensor that repeats a value is taken for slower.
        shortest_s: The shortest pause seen.
        longest_s: The longest.
        changes: How many changes were seen.
        specified_s: What the meter had stated before.
        reason: Why `period_s` is None; None otherwise.
    """

    meter: str
    period_s: float | None
    shortest_s: float | None
    longest_s: float | None
    changes: int
    specified_s: float | None
    reason: str | None = None


def observe_period(
    meter: BaseMeter,
    seconds: float = 5.0,
    *,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> ObservedPeriod:
    """Watch a meter's sensor until it has changed often enough; the meter states what was seen from then on.

    Args:
        meter: The meter; its `precision` takes on the observed period.
        seconds: The longest time to watch.
        clock: Monotonic seconds.
        sleep: Waits that long.

    Raises:
        InputError: `seconds` is not above 0.
    """
    if not seconds > 0:
        raise InputError(f"a sensor is watched for a time above 0 s, got {seconds!r}")
    specified_s = meter.precision.period_s
    try:
        changes_s = _changes_s(meter, seconds, clock, sleep)
    except MeterUnavailableError as error:
        return _nothing(meter, specified_s, 0, str(error))
    pauses_s = [later - earlier for earlier, later in pairwise(changes_s)]
    if not pauses_s:
        return _nothing(meter, specified_s, len(changes_s), _why_not(meter, len(changes_s), seconds))
    period_s = statistics.median(pauses_s)
    _adopt(meter, period_s)
    return ObservedPeriod(
        meter=meter.name,
        period_s=period_s,
        shortest_s=min(pauses_s),
        longest_s=max(pauses_s),
        changes=len(changes_s),
        specified_s=specified_s,
    )


def _changes_s(meter: BaseMeter, seconds: float, clock: Clock, sleep: Callable[[float], None]) -> list[float]:
    pause_s = max(SHORTEST_PAUSE_S, (meter.precision.period_s or 0.0) / LOOKS_PER_PERIOD)
    last: Hashable | None = meter.sensor_value()
    changes_s: list[float] = []
    deadline_s = clock() + seconds
    while len(changes_s) < ENOUGH_CHANGES and clock() < deadline_s and last is not None:
        sleep(pause_s)
        value, now_s = meter.sensor_value(), clock()
        if value != last:
            changes_s.append(now_s)
        last = value
    return changes_s


def _adopt(meter: BaseMeter, period_s: float) -> None:
    """A counter resolves what it updates; a sensor that averages resolves no less than its average."""
    precision = meter.precision
    resolution_s = period_s if precision.what == "counter update" else max(precision.resolution_s, period_s)
    meter.precision = dataclasses.replace(precision, period_s=period_s, resolution_s=resolution_s)


def _why_not(meter: BaseMeter, changes: int, seconds: float) -> str:
    if meter.sensor_value() is None:
        return f"{meter.name} has no sensor to watch"
    return f"changed {changes} time(s) within {seconds:.3g} s: two changes make a period; watch it for longer"


def _nothing(meter: BaseMeter, specified_s: float | None, changes: int, reason: str) -> ObservedPeriod:
    return ObservedPeriod(
        meter=meter.name,
        period_s=None,
        shortest_s=None,
        longest_s=None,
        changes=changes,
        specified_s=specified_s,
        reason=reason,
    )
