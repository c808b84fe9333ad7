"""CO2e: energy times a named grid intensity, without a network, and never by a default."""

import json
import logging
import socket
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InputError
from gearshift.runtime.carbon import (
    HIGHEST_G_PER_KWH,
    chosen_intensity,
    co2e_g,
    given_intensity,
    grid_intensity,
)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("tests have no network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, Any]]:
    """The data as it lies in codecarbon's folder."""
    text = (files("codecarbon") / "data" / "private_infra" / "global_energy_mix.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def test_every_country_has_the_intensity_of_the_table(table: dict[str, dict[str, Any]]) -> None:
    assert len(table) > 150
    for code, mix in table.items():
        found = grid_intensity(code)
        assert found.g_per_kwh == pytest.approx(mix["carbon_intensity"], rel=1e-6)
        assert (found.country, found.country_name, found.year) == (code, mix["country_name"], mix["year"])


def test_a_country_s_intensity_says_where_it_comes_from(caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    with caplog.at_level(logging.DEBUG, logger="codecarbon"):
        found = grid_intensity(" fra ")
    assert found.country == "FRA"
    assert found.source == "codecarbon"
    assert found.basis == "location-based average"
    assert found.dataset is not None
    assert found.dataset.startswith("codecarbon 3")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("country", "near"), [("FRX", "FRA (France)"), ("Germany", "DEU (Germany)"), ("USS", "USA (United States)")]
)
def test_an_unknown_country_is_refused_with_the_nearest_codes(country: str, near: str) -> None:
    """Codecarbon itself would take 475 g/kWh and warn."""
    with pytest.raises(InputError, match=f'no grid intensity for the country "{country}"') as caught:
        grid_intensity(country)
    assert f"nearest: {near}" in str(caught.value) or f", {near}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("country", ["", "  ", "42", "\n", "ÅÅÅ"])
def test_what_resembles_no_country_is_refused_with_examples(country: str) -> None:
    with pytest.raises(InputError, match=r"codes are like: DEU \(Germany\)|nearest: "):
        grid_intensity(country)


def test_one_kilowatt_hour_at_350_g_is_350_g() -> None:
    assert co2e_g(3.6e6, given_intensity(350.0)) == pytest.approx(350.0)
    assert co2e_g(None, given_intensity(350.0)) is None
    assert co2e_g(0.0, given_intensity(350.0)) == 0.0


@given(energy_j=st.floats(0, 1e9), g_per_kwh=st.floats(0, HIGHEST_G_PER_KWH), times=st.integers(1, 1000))
def test_emissions_add_up(energy_j: float, g_per_kwh: float, times: int) -> None:
    intensity = given_intensity(g_per_kwh)
    one = co2e_g(energy_j, intensity)
    assert one is not None
    assert co2e_g(times * energy_j, intensity) == pytest.approx(times * one, rel=1e-9)


@pytest.mark.parametrize("g_per_kwh", [-1.0, 5001.0, float("nan"), float("inf"), 3.5e5])
def test_an_intensity_that_no_grid_has_is_refused(g_per_kwh: float) -> None:
    with pytest.raises(InputError, match="give grams of CO2e per kWh, from 0 to 5000"):
        given_intensity(g_per_kwh)


def test_nothing_is_chosen_by_default() -> None:
    assert chosen_intensity(None, None, None) is None


def test_options_choose_a_country_or_a_figure() -> None:
    country, figure = chosen_intensity("SWE", None, None), chosen_intensity(None, 12.5, "the plant next door")
    assert country is not None
    assert country == grid_intensity("SWE")
    assert figure is not None
    assert (figure.g_per_kwh, figure.source, figure.basis) == (12.5, "the plant next door", "as given")
    assert given_intensity(12.5).source == "given, its source not named"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("FRA", 350.0, None), "either --country FRA or --grid-intensity 350"),
        ((None, None, "me"), '--grid-source "me" names no figure'),
        (("FRA", None, "me"), '--grid-source "me" names no figure'),
        ((None, 350.0, " "), "--grid-source is an empty text"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: tuple[Any, Any, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        chosen_intensity(*options)
