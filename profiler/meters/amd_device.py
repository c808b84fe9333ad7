"""One AMD board through amdsmi, in SI units: the only file that calls that library.

The binding is the `amdsmi` package, which comes with ROCm; it is imported when the first board is opened, and
says what it has to say about a missing library on stdout, which is kept quiet here. Releases differ in units
and names; what we rely on:

    amdsmi_get_energy_count   counter x resolution in µJ (`energy_accumulator`, `power` before ROCm 6.2.1)
    amdsmi_get_power_info     whole W; `current_socket_power` (MI300 and newer), `average_socket_power` (others),
                              `socket_power` (either, in newer releases); "N/A" or all bits set where a board lacks one
    amdsmi_get_power_cap_info limits in µW (documented as W for a while)

Whatever is implausible in the unit expected is refused, not converted. The library is never shut down: that
would take it away from other users in this process (torch is one).
"""

import contextlib
import importlib
import io
from typing import Any

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.board import PLAUSIBLE_FACTOR, UNKNOWN_LIMIT_W, PowerSensor
from gearshift.units import watts_from_microwatts

# Taken for a one-second mean, since AMD does not say over how long the sensors average.
AVERAGING_S = 1.0
_POWER_LABELS = {
    "current_socket_power": "power-current",
    "average_socket_power": "power-average",
    "socket_power": "power-socket",
}
# Limits below this are W, above it µW: no limit lies between 10 kW and 10 mW.
_LARGEST_LIMIT_W = 10_000


class AmdDevice:
    """A board.

    Args:
        target: Index as HIP counts boards when none is hidden, or HIP's UUID of it (a prefix is enough).
        binding: The `amdsmi` package or one that behaves like it; None imports it.

    Raises:
        MeterUnavailableError: The package, the library, the driver or the board is missing.
    """

    library = "amdsmi"

    def __init__(self, target: int | str = 0, binding: Any | None = None) -> None:
        self.binding = load_binding() if binding is None else binding
        self._handle, self.index = _find(self.binding, target)
        self.name = _name(self._if_known("amdsmi_get_gpu_asic_info"))
        self.limit_w = _limit_w(self._if_known("amdsmi_get_power_cap_info"))
        self.units_per_joule = self._units_per_joule()

    @property
    def ceiling_w(self) -> float:
        """Readings above this many watts are nonsense."""
        return UNKNOWN_LIMIT_W if self.limit_w is None else PLAUSIBLE_FACTOR * self.limit_w

    @property
    def has_two_dies(self) -> bool:
        """Whether the board is one die of a package whose first die's sensors cover both."""
        return "MI250" in self.name

    def read_counter(self) -> int:
        """Read the energy accumulator, in its own units."""
        found = self.ask("amdsmi_get_energy_count")
        count = found.get("energy_accumulator", found.get("power"))
        if self._resolution_uj(found) is None or not isinstance(count, int):
            raise MeterUnavailableError(f"amdsmi_get_energy_count gives no counter with a resolution: {found}")
        return count

    def power_sensors(self) -> tuple[PowerSensor, ...]:
        """List the ways to read power, the best defined first."""
        return tuple(
            PowerSensor(label, AVERAGING_S, lambda field=field: self._power_w(field))  # type: ignore[misc]
            for field, label in _POWER_LABELS.items()
        )

    def compute_processes(self) -> tuple[int, ...]:
        """Ids of the processes on the board; none where the library does not say."""
        found = self._if_known("amdsmi_get_gpu_process_list") or ()
        return tuple(int(process["pid"]) for process in found if isinstance(process, dict) and "pid" in process)

    def ask(self, function: str, *arguments: object) -> Any:
        """Call the library about this board.

        Raises:
            MeterUnavailableError: It does not say.
        """
        return call(self.binding, function, self._handle, *arguments)

    def close(self) -> None:
        """Do nothing: see the head of this file."""

    def _units_per_joule(self) -> float:
        found = self._if_known("amdsmi_get_energy_count") or {}
        return 1e6 / (self._resolution_uj(found) or 1.0)

    def _resolution_uj(self, found: dict[str, Any]) -> float | None:
        resolution_uj = found.get("counter_resolution")
        known = isinstance(resolution_uj, int | float) and 0 < resolution_uj < 1e6
        return float(resolution_uj) if known and resolution_uj is not None else None

    def _power_w(self, field: str) -> float:
        power_w = self.ask("amdsmi_get_power_info").get(field)
        if not isinstance(power_w, int | float):
            two_dies = ": its package's first die has the sensors of both" if self.has_two_dies else ""
            raise MeterUnavailableError(f"{field} is {power_w!r} on this board{two_dies}")
        if not 0 < power_w <= self.ceiling_w:
            raise MeterUnavailableError(
                f"implausible: {field} of {power_w:,.0f} W is not above 0 and at most {self.ceiling_w:g} W"
            )
        return float(power_w)

    def _if_known(self, function: str) -> Any:
        try:
            return self.ask(function)
        except MeterUnavailableError:
            return None


def load_binding() -> Any:
    """Import amdsmi.

    Raises:
        MeterUnavailableError: It is not installed, or its library is missing or of another release.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except ImportError as error:
        raise MeterUnavailableError(
            f"amdsmi is not installed ({error}): on a machine with ROCm, `pip install amdsmi` of ROCm's release"
        ) from error
    except (KeyError, OSError) as error:
        raise MeterUnavailableError(
            "amdsmi finds no libamd_smi.so: install ROCm's amd-smi-lib, or set ROCM_PATH to where ROCm lies"
        ) from error
    except AttributeError as error:
        raise MeterUnavailableError(
            f"amdsmi and libamd_smi.so are of different releases ({error}): `pip install amdsmi` of ROCm's release"
        ) from error


def call(binding: Any, function: str, *arguments: object) -> Any:
    """Call one library function.

    Raises:
        MeterUnavailableError: It raised, or does not exist.
    """
    try:
        return getattr(binding, function)(*arguments)
    except AttributeError as error:
        raise MeterUnavailableError(f"{function} is unknown to this amdsmi: pip install -U amdsmi") from error
    except (binding.AmdSmiException, OSError, UnicodeDecodeError) as error:
        raise MeterUnavailableError(f"{function}: {' '.join(str(error).split())}") from error


def list_boards(binding: Any) -> dict[int, tuple[Any, str]]:
    """Map HIP's index of each board to its handle and UUID.

    amdsmi counts boards by their place on the bus, HIP does not always. Releases that do not tell HIP's index
    are taken to count alike.

    Raises:
        MeterUnavailableError: The driver is missing.
    """
    call(binding, "amdsmi_init")
    boards = {}
    for position, handle in enumerate(call(binding, "amdsmi_get_processor_handles")):
        try:
            told = call(binding, "amdsmi_get_gpu_enumeration_info", handle)
        except MeterUnavailableError:
            told = {}
        index = told.get("hip_id")
        boards[index if isinstance(index, int) else position] = (handle, str(told.get("hip_uuid", "")))
    return boards


def _find(binding: Any, target: int | str) -> tuple[Any, int]:
    boards = list_boards(binding)
    for index, (handle, uuid) in sorted(boards.items()):
        if index == target or (isinstance(target, str) and uuid.startswith(target)):
            return handle, index
    raise MeterUnavailableError(f"amdsmi knows no board {target!r}: it lists {sorted(boards)}, as HIP counts them")


def _name(told: dict[str, Any] | None) -> str:
    name = (told or {}).get("market_name")
    return str(name) if name and name != "N/A" else "unnamed AMD board"


def _limit_w(told: dict[str, Any] | None) -> float | None:
    limit = (told or {}).get("power_cap")
    if not isinstance(limit, int | float) or limit <= 0:
        return None
    return float(limit) if limit <= _LARGEST_LIMIT_W else watts_from_microwatts(limit)
