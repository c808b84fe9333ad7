"""Idle power that was measured once and kept with the device, so that later runs can state net energy."""

from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gearshift.profiler.meters.idle import IdlePower
from gearshift.profiler.meters.protocol import Meter

if TYPE_CHECKING:
    from gearshift.profiler.device import DeviceIdentity
    from gearshift.profiler.device_store import DeviceStore


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIdle:
    """An idle power and where it comes from.

    Attributes:
        power_w: Watts.
        uncertainty_w: Half-width, or None.
        seconds: How long was measured.
        source: How it was obtained; it holds for a meter of the same source only.
        measured_at: When, as ISO 8601 in UTC.
        warnings: What makes it doubtful.
    """

    power_w: float
    uncertainty_w: float | None
    seconds: float
    source: str
    measured_at: str
    warnings: tuple[str, ...] = ()

    def age_s(self, now: datetime | None = None) -> float:
        """Seconds since it was measured."""
        return ((now or datetime.now(UTC)) - datetime.fromisoformat(self.measured_at)).total_seconds()

    def to_idle_power(self) -> IdlePower:
        """Give it as what `net_energy_j` takes."""
        return IdlePower(
            power_w=self.power_w,
            seconds=self.seconds,
            uncertainty_w=self.uncertainty_w,
            source=self.source,
            how=f"{self.seconds:.3g} s without work, kept since {self.measured_at}",
            warnings=self.warnings,
        )


def keep_idle(
    idle: IdlePower, meter: Meter, device: "DeviceIdentity", store: "DeviceStore", *, now: datetime | None = None
) -> str | None:
    """Keep a measured idle power; return why it was not kept, or None.

    An idle power that is None, or a constant of an estimate, is not kept.
    """
    if idle.power_w is None:
        return idle.reason
    if not idle.seconds > 0:
        return f"it is a constant of {meter.name}: there is nothing to keep"
    kept = KeptIdle(
        power_w=idle.power_w,
        uncertainty_w=idle.uncertainty_w,
        seconds=idle.seconds,
        source=idle.source,
        measured_at=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        warnings=idle.warnings,
    )
    return store.save(device, _kind(meter.name), asdict(kept))


def kept_idle(meter: Meter, device: "DeviceIdentity", store: "DeviceStore") -> KeptIdle | None:
    """Return what is kept for this meter and device; None where nothing is, or it was read in another way."""
    return kept_idle_of(meter.name, meter.source, device, store)


def kept_idle_of(name: str, source: str, device: "DeviceIdentity", store: "DeviceStore") -> KeptIdle | None:
    """The same by the meter's name and source, for a meter that is not open."""
    kept = _read(store.load(device, _kind(name)))
    return kept if kept is not None and kept.source == source else None


def _kind(name: str) -> str:
    return f"idle-{name}"


def _read(figures: dict[str, Any] | None) -> KeptIdle | None:
    """Read what was kept; damaged figures are as good as none."""
    if figures is None or set(figures) != {field.name for field in fields(KeptIdle)}:
        return None
    try:
        kept = KeptIdle(**{**figures, "warnings": tuple(figures["warnings"])})
        kept.age_s()
    except (TypeError, ValueError):
        return None
    return kept if isinstance(kept.power_w, int | float) else None
