"""Numbers as text: three significant digits, exponents only where one would write them, null never as 0."""

import math
from collections.abc import Iterable

NOT_MEASURED = "not measured"


def number(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, whole numbers in full: 0.421, 48.1, 1234."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude >= 9:
        return f"{value:.{digits}g}"
    text = f"{value:.{max(digits - 1 - magnitude, 0)}f}"
    return text.replace("-", "−")


def trimmed(value: float, digits: int = 3) -> str:
    """As `number`, without zeros behind the decimal point: limits, times and shares, which are exact."""
    text = number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def scale(unit: str, values: Iterable[float | None]) -> tuple[float, str]:
    """Factor and unit for values side by side, chosen by the largest: thousandths where that is small."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    return (1e3, f"m{unit}") if unit in ("J", "W", "g") and 0 < largest < 0.9995 else (1.0, unit)


def quantity(value: float | None, unit: str, *, exact: bool = False) -> str:
    """A number with its unit, small ones in thousandths: 421 mJ."""
    if value is None:
        return NOT_MEASURED
    factor, unit = scale(unit, [value])
    return f"{(trimmed if exact else number)(value * factor)} {unit}"


def percent(share: float | None) -> str:
    """A share as a percentage, to a tenth; what is there but less than that reads "< 0.1 %"."""
    if share is None:
        return NOT_MEASURED
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


def comparison(value: float, limit: float) -> str:
    """How far a value lies from a limit: "1.4 % below", "2.1 times"."""
    if value >= 2 * limit:
        return f"{number(value / limit)} times"
    part = abs(value / limit - 1)
    if part < 0.0005:
        return "at"
    return f"{number(part * 100, 2)} % {'above' if value > limit else 'below'}"


def count(number_of: int, noun: str) -> str:
    """A count with its noun: 1 frame, 2 frames."""
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"


def size(number_of_bytes: int) -> str:
    """Memory, in powers of 1024."""
    value = float(number_of_bytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{number(value)} {unit}"
        value /= 1024
    return f"{number(value)} GiB"


def operations(macs: int) -> str:
    """Multiply-accumulates, in thousands of millions."""
    return f"{number(macs / 1e9)} GMAC"


def sentence(text: str) -> str:
    """Begin with a capital and end with a full stop."""
    return "" if not text else f"{text[:1].upper()}{text[1:].rstrip('.')}."


def shortened(text: str, longest: int) -> str:
    """`text`, with its middle left out where it is longer than `longest`."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"
