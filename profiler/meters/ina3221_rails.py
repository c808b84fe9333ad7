"""Which power rails a Jetson's monitors (INA3221, and INA238 on Thor) offer in sysfs, and which one is the total.

    sys/bus/i2c/drivers/{ina3221,ina3221x,ina238}/1-0040/hwmon/hwmon3/in1_label   JetPack 5 and later
    sys/bus/i2c/drivers/ina3221x/6-0040/hwmon3/in1_label                          between the two
    sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0/rail_name_0                   JetPack 4 and earlier

hwmon gives mV and mA (and, where a driver has it, power in µW); iio gives mV, mA and mW. Channels that are
not connected ("NC") or switched off, and the sum of shunt voltages (channel 7), are no rails.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import sysfs
from gearshift.units import watts_from_microwatts, watts_from_milliwatts

DRIVERS = Path("sys/bus/i2c/drivers")
_MONITORS = ("ina3221", "ina3221x")
# Thor has one at the input of its carrier board, without a label; jetson-stats names it so too.
_INPUT_MONITOR, _INPUT_LABEL = "ina238", "VIN"
# Rails through which everything else is fed, the outermost first; other rails are parts of them.
_INPUT_RAILS = ("VIN", "VDD_MUX", "VDD_IN", "POM_5V_IN")
_SHUNT_SUM_CHANNEL = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """One rail that can be read.

    Attributes:
        label: Its name on the board.
        power: The file that holds its power, or None where voltage and current are multiplied.
        power_unit_w: Watts per unit of that file.
        voltage: The file that holds mV.
        current: The file that holds mA.
    """

    label: str
    power: Path | None
    power_unit_w: float
    voltage: Path
    current: Path

    def read_w(self) -> float:
        """Read its power.

        Raises:
            MeterUnavailableError: A file cannot be read, or holds no number.
        """
        try:
            if self.power is not None:
                return int(self.power.read_text()) * self.power_unit_w
            power_uw = int(self.voltage.read_text()) * int(self.current.read_text())
        except (OSError, ValueError) as error:
            raise MeterUnavailableError(f"rail {self.label}: {error}") from error
        return watts_from_microwatts(power_uw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The rails of a board.

    Attributes:
        total: The rails whose sum is the total: the input rail, or all where there is none.
        parts: Rails within the total, for information.
        is_whole: Whether the total is an input rail, through which everything else is fed.
        notes: What was left out, and whether the total is partial.
    """

    total: tuple[Rail, ...]
    parts: tuple[Rail, ...]
    is_whole: bool
    notes: tuple[str, ...]


def find_rails(root: Path) -> Board:
    """Find the rails, each by a trial reading.

    Raises:
        MeterUnavailableError: There is none.
    """
    rails: dict[str, Rail] = {}
    notes: list[str] = []
    for rail in _rails(root / DRIVERS):
        try:
            rail.read_w()
        except MeterUnavailableError as error:
            notes.append(f"left out: {error}")
            continue
        label = _unused(rails, rail)
        rails.setdefault(label, replace(rail, label=label))
    if not rails:
        raise MeterUnavailableError(
            f"no power rails under {root / DRIVERS}/ina3221"
            + (f" ({'; '.join(notes)})" if notes else "")
            + ": only boards with such a monitor (Jetson) have them; in a container mount /sys"
        )
    return _divide(rails, notes)


def _divide(rails: dict[str, Rail], notes: list[str]) -> Board:
    wanted = next((label for label in _INPUT_RAILS if label in rails), None)
    if wanted is None:
        note = "no input rail can be read: the total is the sum of the rails that can, and leaves out all others"
        return Board(total=tuple(rails.values()), parts=(), is_whole=False, notes=(*notes, note))
    parts = tuple(rail for label, rail in rails.items() if label != wanted)
    return Board(total=(rails[wanted],), parts=parts, is_whole=True, notes=tuple(notes))


def _rails(drivers: Path) -> Iterator[Rail]:
    for driver in (*_MONITORS, _INPUT_MONITOR):
        for device in sorted((drivers / driver).glob("*-*")):
            for folder in _folders(device):
                yield from _input_rail(folder) if driver == _INPUT_MONITOR else _labelled_rails(folder)


def _folders(device: Path) -> list[Path]:
    """The folders that hold a monitor's files, at either depth."""
    found = [*device.glob("hwmon/hwmon*"), *device.glob("hwmon[0-9]*"), *device.glob("iio:device*")]
    return sorted(folder for folder in found if folder.is_dir())


def _input_rail(folder: Path) -> Iterator[Rail]:
    if (folder / "power1_input").exists() or (folder / "curr1_input").exists():
        yield _hwmon_rail(folder, 1, _INPUT_LABEL)


def _labelled_rails(folder: Path) -> Iterator[Rail]:
    for path in sorted(folder.glob("in*_label")):
        channel = path.name.removeprefix("in").removesuffix("_label")
        label = sysfs.text(path)
        if channel.isdecimal() and _is_rail(label, int(channel)) and sysfs.text(folder / f"in{channel}_enable") != "0":
            yield _hwmon_rail(folder, int(channel), label)
    for path in sorted(folder.glob("rail_name_*")):
        channel = path.name.removeprefix("rail_name_")
        label = sysfs.text(path)
        if channel.isdecimal() and _is_rail(label, None):
            yield _iio_rail(folder, int(channel), label)


def _hwmon_rail(folder: Path, channel: int, label: str) -> Rail:
    power, current = folder / f"power{channel}_input", folder / f"curr{channel}_input"
    return Rail(
        label=label,
        power=power if power.exists() and not current.exists() else None,
        power_unit_w=watts_from_microwatts(1),
        voltage=folder / f"in{channel}_input",
        current=current,
    )


def _iio_rail(folder: Path, channel: int, label: str) -> Rail:
    power = folder / f"in_power{channel}_input"
    return Rail(
        label=label,
        power=power if power.exists() else None,
        power_unit_w=watts_from_milliwatts(1),
        voltage=folder / f"in_voltage{channel}_input",
        current=folder / f"in_current{channel}_input",
    )


def _is_rail(label: str, channel: int | None) -> bool:
    shunt_sum = channel is not None and channel >= _SHUNT_SUM_CHANNEL
    return bool(label) and label != "NC" and not shunt_sum and "sum of shunt" not in label.lower()


def _unused(rails: dict[str, Rail], rail: Rail) -> str:
    """Tell two rails of one name apart; the same files seen twice are one rail."""
    namesake = rails.get(rail.label)
    if namesake is None or namesake.voltage.resolve() == rail.voltage.resolve():
        return rail.label
    return f"{rail.label} ({rail.voltage.parent})"
