"""CO2e of electricity: energy times the grid's intensity, from a source that is named. Nothing is looked up online.

    grid_intensity("FRA")            a country's yearly mean, from the data that codecarbon carries
    given_intensity(350, "my grid")  a figure of one's own, in g/kWh
    co2e_g(energy_j, intensity)      1 kWh at 350 g/kWh is 350 g

A country's mean is location-based: what the grid there emits on average over a year, whatever contract is held
(the Software Carbon Intensity specification allows no market-based offsets) and at whatever hour. Codecarbon
itself answers an unknown country with a world mean and a warning; here that is an error.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from gearshift.errors import InputError
from gearshift.units import kilowatt_hours

DATASET = "global_energy_mix.json"
HIGHEST_G_PER_KWH = 5000.0
"""Above any grid's (the highest mean of a country is about 1300): what lies beyond is another unit."""
UNNAMED = "given, its source not named"
NEAREST = 5
EXAMPLES = ("DEU", "FRA", "USA")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridIntensity:
    """Emissions of a grid's electricity.

    Attributes:
        g_per_kwh: Grams of CO2 equivalent per kWh.
        source: Who says so.
        basis: What kind of figure it is.
        dataset: File and package version that it was read from; None where it was given.
        country: ISO 3166-1 alpha-3 code, or None.
        country_name: The country's name, or None.
        year: Of the data, or None.
    """

    g_per_kwh: float
    source: str
    basis: str
    dataset: str | None = None
    country: str | None = None
    country_name: str | None = None
    year: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.g_per_kwh) and 0 <= self.g_per_kwh <= HIGHEST_G_PER_KWH):
            raise InputError(
                f"a grid intensity of {self.g_per_kwh:g} g/kWh cannot be; "
                f"give grams of CO2e per kWh, from 0 to {HIGHEST_G_PER_KWH:g}"
            )


def grid_intensity(country: str) -> GridIntensity:
    """A country's mean grid intensity, from codecarbon's offline data.

    Args:
        country: ISO 3166-1 alpha-3 code, such as FRA.

    Raises:
        InputError: The data holds no such country; the nearest codes are named.
    """
    from codecarbon.core.emissions import Emissions
    from codecarbon.core.units import Energy
    from codecarbon.external.geography import GeoMetadata
    from codecarbon.input import DataSource

    data = DataSource()
    known: Mapping[str, Mapping[str, Any]] = data.get_global_energy_mix_data()
    code = country.strip().upper()
    if code not in known:
        raise InputError(_unknown(country, known))
    name, year = str(known[code]["country_name"]), known[code].get("year")
    place = GeoMetadata(country_iso_code=code, country_name=name)
    kilograms = Emissions(data).get_country_emissions(Energy.from_energy(kWh=1.0), place)
    return GridIntensity(
        g_per_kwh=round(kilograms * 1e3, 6),  # codecarbon has it in kg: 56.039 g would come back as 56.039000000000005
        source="codecarbon",
        basis="location-based average",
        dataset=f"codecarbon {version('codecarbon')}, {DATASET}",
        country=code,
        country_name=name,
        year=None if year is None else int(year),
    )


def given_intensity(g_per_kwh: float, source: str | None = None) -> GridIntensity:
    """An intensity that the user gives.

    Args:
        g_per_kwh: Grams of CO2 equivalent per kWh.
        source: Who says so.

    Raises:
        InputError: It is negative, not finite, or beyond any grid's; or the source is an empty text.
    """
    if source is not None and not source.strip():
        raise InputError("--grid-source is an empty text; name who gives the grid intensity, or leave it out")
    return GridIntensity(g_per_kwh=g_per_kwh, source=source or UNNAMED, basis="as given")


def chosen_intensity(country: str | None, g_per_kwh: float | None, source: str | None) -> GridIntensity | None:
    """The intensity that the options `--country`, `--grid-intensity` and `--grid-source` ask for; None if none is.

    Raises:
        InputError: They contradict each other, or what they ask for is not there.
    """
    if country is not None and g_per_kwh is not None:
        raise InputError(f"give either --country {country} or --grid-intensity {g_per_kwh:g}, not both")
    if source is not None and g_per_kwh is None:
        raise InputError(f'--grid-source "{source}" names no figure; add --grid-intensity, in g/kWh')
    if country is not None:
        return grid_intensity(country)
    return None if g_per_kwh is None else given_intensity(g_per_kwh, source)


def co2e_g(energy_j: float | None, intensity: GridIntensity) -> float | None:
    """Grams of CO2 equivalent of some electricity; None where the energy was not measured."""
    return None if energy_j is None else kilowatt_hours(energy_j) * intensity.g_per_kwh


def _unknown(country: str, known: Mapping[str, Mapping[str, Any]]) -> str:
    """Name the nearest codes: by the code, or where a country's name was written, by that."""
    names = {str(mix["country_name"]).upper(): code for code, mix in known.items()}
    asked = country.strip().upper()
    by_name = [names[name] for name in difflib.get_close_matches(asked, names, n=NEAREST, cutoff=0.75)]
    by_code = difflib.get_close_matches(asked, known, n=NEAREST, cutoff=0.5)
    near = list(dict.fromkeys([*by_name, *by_code]))[:NEAREST]
    named = [f"{code} ({known[code]['country_name']})" for code in near or EXAMPLES]
    shown = f"{'nearest' if near else 'codes are like'}: {', '.join(named)}"
    return (
        f'no grid intensity for the country "{country}" among the {len(known)} that codecarbon knows; '
        f"{shown}; write a three-letter code, or give --grid-intensity in g/kWh"
    )
