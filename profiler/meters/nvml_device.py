"""One NVIDIA board through NVML, in SI units: the only file that calls the library.

The binding is nvidia-ml-py (`import pynvml`), imported when the first board is opened. Whatever the library
raises becomes `MeterUnavailableError` with the call's name, the library's words and, where known, a remedy.
"""

import contextlib
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.board import PLAUSIBLE_FACTOR, UNKNOWN_LIMIT_W, UPDATE_PERIOD_S, PowerSensor
from gearshift.units import watts_from_milliwatts

# From Ampere on the usual power reading is a mean over one second.
AVERAGING_S = 1.0

_REMEDIES = {
    "NVMLError_LibraryNotFound": (
        "install the NVIDIA driver, or give the container access to it (docker run --gpus all)"
    ),
    "NVMLError_DriverNotLoaded": "load the kernel driver: sudo modprobe nvidia",
    "NVMLError_LibRmVersionMismatch": "driver and library differ: reboot, or reload the nvidia modules",
    "NVMLError_NoPermission": "ask the administrator for access to /dev/nvidia*",
    "NVMLError_GpuIsLost": "the board fell off the bus: reboot",
}


class NvmlDevice:
    """A board, open until `close`.

    Args:
        target: Index in the library's order (that of `nvidia-smi`), or a UUID (a unique prefix is enough) of
            the board or of one of its MIG slices.
        binding: The `pynvml` module or one that behaves like it; None imports it.

    Raises:
        MeterUnavailableError: The package, the library, the driver or the board is missing.
    """

    library = "NVML"
    units_per_joule = 1000.0

    def __init__(self, target: int | str = 0, binding: ModuleType | Any | None = None) -> None:
        self.binding = load_binding() if binding is None else binding
        self.call("nvmlInit")
        try:
            self._handle, self.index = self._find(target)
            self.uuid = as_text(self._if_known("nvmlDeviceGetUUID")) or "unknown UUID"
            self.name = as_text(self._if_known("nvmlDeviceGetName")) or "unnamed board"
            self.limit_w = self._limit_w()
        except MeterUnavailableError:
            self.close()
            raise

    @property
    def ceiling_w(self) -> float:
        """Readings above this many watts are nonsense."""
        return UNKNOWN_LIMIT_W if self.limit_w is None else PLAUSIBLE_FACTOR * self.limit_w

    @property
    def is_partitioned(self) -> bool:
        """Whether the board is split into MIG slices, which share its one meter."""
        modes = self._if_known("nvmlDeviceGetMigMode")
        return bool(modes) and modes[0] == 1

    def read_counter(self) -> int:
        """Read the counter: mJ since the driver was loaded, as the library gives it."""
        return int(self.call("nvmlDeviceGetTotalEnergyConsumption", self._handle))

    def compute_processes(self) -> tuple[int, ...]:
        """Ids of the processes that compute on the board; none where the library does not say."""
        found = self._if_known("nvmlDeviceGetComputeRunningProcesses")
        return tuple(int(process.pid) for process in found or ())

    def power_sensors(self) -> tuple[PowerSensor, ...]:
        """List the ways to read power, the best defined first."""
        return (
            PowerSensor("power-average", AVERAGING_S, lambda: self._field_w("NVML_FI_DEV_POWER_AVERAGE")),
            PowerSensor("power-instant", UPDATE_PERIOD_S, lambda: self._field_w("NVML_FI_DEV_POWER_INSTANT")),
            PowerSensor("power-usage", AVERAGING_S, self._usage_w),
        )

    def close(self) -> None:
        """Give the library back; it counts its users."""
        with contextlib.suppress(MeterUnavailableError):
            self.call("nvmlShutdown")

    def call(self, function: str, *arguments: object) -> Any:
        """Call the library; whatever it raises becomes one error that says which call and why."""
        return call(self.binding, function, *arguments)

    def ask(self, function: str, *arguments: object) -> Any:
        """Call the library about this board.

        Raises:
            MeterUnavailableError: It does not say.
        """
        return self.call(function, self._handle, *arguments)

    def _find(self, target: int | str) -> tuple[Any, int]:
        """Find a board by index, by its UUID, or by that of a slice of it; note the slice."""
        self.slice: str | None = None
        if isinstance(target, int):
            return self.call("nvmlDeviceGetHandleByIndex", target), target
        boards = [(handle, index) for index in range(self._count()) if (handle := self._handle_of(index)) is not None]
        for handle, index in boards:
            if self._uuid_of(handle).startswith(_board_part(target)):
                self.slice = target if target.startswith("MIG-") else None
                return handle, index
        # torch tells the UUID of a slice as if it were that of a board
        wanted = f"MIG-{target.removeprefix('GPU-').removeprefix('MIG-')}"
        for handle, index in boards:
            if any(self._uuid_of(part).startswith(wanted) for part in self._slices(handle)):
                self.slice = wanted
                return handle, index
        raise MeterUnavailableError(
            f"NVML knows no board or MIG slice with UUID {target!r}: `nvidia-smi -L` lists them"
        )

    def _count(self) -> int:
        return int(self.call("nvmlDeviceGetCount"))

    def _handle_of(self, index: int) -> Any | None:
        try:
            return self.call("nvmlDeviceGetHandleByIndex", index)
        except MeterUnavailableError:  # one board that is lost does not hide the others
            return None

    def _uuid_of(self, handle: Any) -> str:
        try:
            return as_text(self.call("nvmlDeviceGetUUID", handle)) or ""
        except MeterUnavailableError:
            return ""

    def _slices(self, handle: Any) -> Iterator[Any]:
        with contextlib.suppress(MeterUnavailableError):  # boards without MIG do not know the word
            for position in range(int(self.call("nvmlDeviceGetMaxMigDeviceCount", handle))):
                with contextlib.suppress(MeterUnavailableError):  # a place that holds no slice
                    yield self.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)

    def _if_known(self, function: str) -> Any:
        """Call for something that is good to know; None where the library does not say."""
        try:
            return self.ask(function)
        except MeterUnavailableError:
            return None

    def _limit_w(self) -> float | None:
        limit_mw = self._if_known("nvmlDeviceGetEnforcedPowerLimit") or self._if_known(
            "nvmlDeviceGetPowerManagementLimit"
        )
        return watts_from_milliwatts(limit_mw) if limit_mw else None

    def _usage_w(self) -> float:
        return self._plausible_w(self.call("nvmlDeviceGetPowerUsage", self._handle))

    def _field_w(self, field: str) -> float:
        identifier = getattr(self.binding, field, None)
        if identifier is None:
            raise MeterUnavailableError(f"{field} is unknown to this binding: pip install -U nvidia-ml-py")
        value = self.call("nvmlDeviceGetFieldValues", self._handle, [identifier])[0]
        if value.nvmlReturn != 0:
            words = as_text(self.call("nvmlErrorString", value.nvmlReturn))
            raise MeterUnavailableError(f"{field}: {words}")
        return self._plausible_w(value.value.uiVal)

    def _plausible_w(self, power_mw: float) -> float:
        """Convert to watts; refuse what no powered board can draw, zero included."""
        power_w = watts_from_milliwatts(power_mw)
        if not 0 < power_w <= self.ceiling_w:
            raise MeterUnavailableError(
                f"implausible: {power_w:,.0f} W is not above 0 and at most {self.ceiling_w:g} W"
            )
        return power_w


def _board_part(uuid: str) -> str:
    """The board's UUID in the older name of a slice, `MIG-GPU-<uuid>/<gpu instance>/<compute instance>`."""
    return uuid.removeprefix("MIG-").partition("/")[0] if uuid.startswith("MIG-GPU-") else uuid


def load_binding() -> Any:
    """Import nvidia-ml-py.

    Raises:
        MeterUnavailableError: It is not installed.
    """
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise MeterUnavailableError(f"nvidia-ml-py is not installed ({error}): pip install nvidia-ml-py") from error


def call(binding: Any, function: str, *arguments: object) -> Any:
    """Call one library function; text that is not UTF-8 is returned as bytes.

    Raises:
        MeterUnavailableError: It raised, or does not exist.
    """
    try:
        return getattr(binding, function)(*arguments)
    except UnicodeDecodeError as error:  # the binding decodes strictly
        return error.object
    except AttributeError as error:
        raise MeterUnavailableError(f"{function} is unknown to this binding: pip install -U nvidia-ml-py") from error
    except (binding.NVMLError, OSError, getattr(binding, "NVMLLibraryMismatchError", OSError)) as error:
        remedy = _REMEDIES.get(type(error).__name__)
        raise MeterUnavailableError(f"{function}: {error}" + (f": {remedy}" if remedy else "")) from error


def count_boards(binding: Any) -> int:
    """Count the boards that NVML lists.

    Raises:
        MeterUnavailableError: The library, or the driver, is missing.
    """
    call(binding, "nvmlInit")
    try:
        return int(call(binding, "nvmlDeviceGetCount"))
    finally:
        with contextlib.suppress(MeterUnavailableError):
            call(binding, "nvmlShutdown")


def driver_version(binding: Any | None = None) -> str | None:
    """Tell the NVIDIA driver's version, or None where there is none."""
    try:
        library = load_binding() if binding is None else binding
        call(library, "nvmlInit")
    except MeterUnavailableError:
        return None
    with contextlib.suppress(MeterUnavailableError):
        version = as_text(call(library, "nvmlSystemGetDriverVersion"))
        call(library, "nvmlShutdown")
        return version
    return None


def as_text(value: str | bytes | None) -> str | None:
    """Accept text or bytes, valid UTF-8 or not; a name never stops a measurement."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if value is None else value.encode("utf-8", errors="replace").decode("utf-8")
