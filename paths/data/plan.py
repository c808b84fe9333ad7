"""The plan of a street: its light, its measures, its bend, all drawn from the seed."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from gearshift.paths.data.faces import Colour

CHUNK_M = 12.0
STOREY_M = 2.9
PARKING_HALF_ROAD_M = 3.6  # narrower streets have no room for parked cars
CAMERA_SPEED_M_S = 8.0
CHUNK_BIAS = 1 << 20  # the street reaches behind its start, and seeds are hashed from natural numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """The weather of one street."""

    name: str
    gain: tuple[float, float, float]
    zenith: Colour
    horizon: Colour
    cloud: float
    haze_m: float
    sun_side: int
    contrast: float
    lit_windows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What stays the same along one street."""

    seed: int
    light: Light
    half_road_m: float
    pavement_m: float
    camera_x_m: float
    camera_y_m: float
    horizon: float
    bend_m: float
    bend_length_m: float
    density: float
    leafy: float
    traffic: float
    bonnet: bool
    asphalt: Colour
    paving: Colour
    lead_car: bool

    @classmethod
    def of(cls, seed: int) -> Self:
        """Draw the plan of street `seed`."""
        rng = np.random.default_rng([seed, 0])
        half_road = float(rng.uniform(2.7, 4.5))
        clearance = half_road - 2.8 if half_road > PARKING_HALF_ROAD_M else half_road
        grey = float(rng.uniform(66, 104))
        paving = float(rng.uniform(88, 136))
        return cls(
            seed=seed,
            light=_light(rng),
            half_road_m=half_road,
            pavement_m=float(rng.uniform(2.6, 5.0)),
            camera_x_m=-min(half_road * float(rng.uniform(0.3, 0.5)), clearance),
            camera_y_m=float(rng.uniform(1.25, 1.75)),
            horizon=float(rng.uniform(0.46, 0.56)),
            bend_m=float(rng.uniform(0, 9)),
            bend_length_m=float(rng.uniform(60, 110)),
            density=float(rng.uniform(0.65, 1.0)),
            leafy=float(rng.uniform(0.2, 0.75)),
            traffic=float(rng.uniform(0.3, 1.0)),
            bonnet=bool(rng.random() < 0.3),
            asphalt=_tint(rng, grey, 6),
            paving=_tint(rng, paving, 12),
            lead_car=bool(rng.random() < 0.5),
        )

    def bend(self, z_m: np.ndarray, camera_z_m: float) -> np.ndarray:
        """Return how far the road's centre has swung aside at `z_m`, seen along the camera's heading."""
        scale = 1 / self.bend_length_m
        here = camera_z_m * scale
        swing = np.sin(z_m * scale) - math.sin(here) - math.cos(here) * (z_m * scale - here)
        return np.asarray(self.bend_m * swing)


def _light(rng: np.random.Generator) -> Light:
    name = ("sunny", "overcast", "dusk")[int(rng.choice(3, p=(0.45, 0.35, 0.2)))]
    side = -1 if rng.random() < 0.5 else 1
    jitter = float(rng.uniform(0.88, 1.1))
    warm = float(rng.uniform(0.95, 1.05))
    gain = {"sunny": 0.9, "overcast": 0.72, "dusk": 0.46}[name] * jitter
    zenith, horizon = {
        "sunny": ((105, 165, 228), (222, 238, 248)),
        "overcast": ((168, 174, 182), (226, 228, 230)),
        "dusk": ((92, 104, 140), (214, 176, 150)),
    }[name]
    shift = float(rng.uniform(-14, 14))
    return Light(
        name=name,
        gain=(gain * warm, gain, gain / warm),
        zenith=(zenith[0] + shift, zenith[1] + shift, zenith[2]),
        horizon=(horizon[0], horizon[1] + shift / 3, horizon[2]),
        cloud=float(rng.uniform(0.1, 0.9)),
        haze_m={"sunny": 420.0, "overcast": 230.0, "dusk": 280.0}[name],
        sun_side=side,
        contrast={"sunny": 0.36, "overcast": 0.08, "dusk": 0.14}[name],
        lit_windows={"sunny": 0.02, "overcast": 0.12, "dusk": 0.4}[name],
    )


def _tint(rng: np.random.Generator, level: float, spread: float) -> Colour:
    red, green, blue = level + rng.uniform(-spread, spread, 3)
    return float(red), float(green), float(blue)
