"""Who moves along the street: pedestrians, bicyclists, cars."""

from dataclasses import dataclass

import numpy as np

from gearshift.paths.data.faces import (
    BICYCLIST,
    CAR,
    PAVEMENT,
    PEDESTRIAN,
    ROAD,
    Builder,
    Chunk,
    Colour,
    Layer,
    Point,
    Surface,
    dim,
    disc,
    ground_patch,
    jitter,
    pick,
    rectangle,
)
from gearshift.paths.data.plan import CAMERA_SPEED_M_S, CHUNK_M, PARKING_HALF_ROAD_M, Plan

_CLOTHES: tuple[Colour, ...] = (
    (34, 36, 44),
    (50, 58, 86),
    (120, 36, 40),
    (92, 92, 96),
    (196, 190, 180),
    (62, 82, 60),
    (150, 120, 84),
    (42, 42, 42),
    (70, 96, 140),
)
_SKIN: tuple[Colour, ...] = ((206, 166, 140), (168, 120, 92), (110, 78, 60))
_PAINT: tuple[Colour, ...] = (
    (176, 180, 184),
    (58, 60, 66),
    (30, 32, 36),
    (206, 206, 204),
    (128, 30, 34),
    (44, 66, 116),
    (92, 112, 104),
    (150, 140, 116),
    (52, 92, 150),
)
_GLASS: Colour = (48, 56, 64)


def add_people(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float) -> None:
    """Add who walks on one pavement and who cycles beside it."""
    for _ in range(int(rng.poisson(1.0))):
        x = side * (plan.half_road_m + float(rng.uniform(0.5, max(0.8, plan.pavement_m - 0.3))))
        speed = float(rng.choice([-1.3, -1.0, 0.0, 1.0, 1.3]))
        _pedestrian(build, rng, x, start + float(rng.uniform(0, CHUNK_M)), speed)
    if rng.random() < 0.2:
        x = side * (plan.half_road_m - float(rng.uniform(0.5, 1.0)))
        _bicyclist(build, rng, x, start + float(rng.uniform(0, CHUNK_M)), -4.0 * side)


def _pedestrian(build: Builder, rng: np.random.Generator, x: float, z: float, speed: float) -> None:
    tall = float(rng.uniform(1.5, 1.9))
    stride = float(rng.uniform(0.05, 0.2))
    coat, legs, skin = pick(rng, _CLOTHES), pick(rng, _CLOTHES[:4]), pick(rng, _SKIN)
    build.place(Layer.STREET, z, float(rng.random()), speed)
    build.face(ground_patch(x, z, 0.5, 0.4), PAVEMENT, (60, 60, 62), Surface.SHADOW)
    hip, shoulder = tall * 0.5, tall * 0.84
    for foot in (-stride, stride):
        leg = [(x + foot - 0.08, 0.0), (x + foot + 0.08, 0.0), (x + 0.15, hip), (x - 0.15, hip)]
        build.front(leg, z, PEDESTRIAN, legs)
    torso = [(x - 0.19, hip - 0.08), (x + 0.19, hip - 0.08), (x + 0.25, shoulder - 0.1), (x + 0.16, shoulder)]
    build.front([*torso, (x - 0.16, shoulder), (x - 0.25, shoulder - 0.1)], z, PEDESTRIAN, coat)
    for arm in (-1, 1):
        sleeve = rectangle(x + arm * 0.22 - 0.05, x + arm * 0.22 + 0.05, hip, shoulder - 0.06)
        build.front(sleeve, z, PEDESTRIAN, dim(coat, 0.85))
    build.front(disc(x, tall - 0.12, 0.1, 0.14, 8), z, PEDESTRIAN, skin)
    build.front(disc(x, tall - 0.07, 0.1, 0.09, 8), z, PEDESTRIAN, pick(rng, ((40, 32, 26), (96, 76, 50)), 10))


def _bicyclist(build: Builder, rng: np.random.Generator, x: float, z: float, speed: float) -> None:
    coat, legs = pick(rng, (*_CLOTHES, (214, 220, 60))), pick(rng, _CLOTHES[:4])
    build.place(Layer.STREET, z, float(rng.random()), speed)
    build.face(ground_patch(x, z, 0.5, 1.6), ROAD, (50, 50, 52), Surface.SHADOW)
    build.front(disc(x, 0.34, 0.07, 0.34), z, BICYCLIST, (28, 28, 30))
    build.front(rectangle(x - 0.05, x + 0.05, 0.5, 1.0), z, BICYCLIST, pick(rng, _PAINT))
    build.front(rectangle(x - 0.3, x + 0.3, 0.96, 1.02), z, BICYCLIST, (40, 40, 42))
    for leg, low in ((-1, 0.25), (1, 0.45)):
        shin = [(x + leg * 0.1, low), (x + leg * 0.2, low), (x + leg * 0.22, 1.0), (x + leg * 0.02, 1.0)]
        build.front(shin, z, BICYCLIST, legs)
    torso = [(x - 0.18, 0.9), (x + 0.18, 0.9), (x + 0.26, 1.4), (x + 0.14, 1.55), (x - 0.14, 1.55)]
    build.front([*torso, (x - 0.26, 1.4)], z, BICYCLIST, coat)
    for arm in (-1, 1):
        sleeve = [(x + arm * 0.2, 1.4), (x + arm * 0.28, 1.35), (x + arm * 0.32, 1.0), (x + arm * 0.25, 1.0)]
        build.front(sleeve, z, BICYCLIST, dim(coat, 0.85))
    build.front(disc(x, 1.7, 0.11, 0.15, 8), z, BICYCLIST, pick(rng, _SKIN))
    build.front(disc(x, 1.75, 0.13, 0.12, 8), z, BICYCLIST, pick(rng, _CLOTHES))


def add_traffic(build: Builder, rng: np.random.Generator, plan: Plan, start: float) -> None:
    """Add parked and oncoming cars."""
    for side in (-1, 1):
        if plan.half_road_m > PARKING_HALF_ROAD_M and rng.random() < 0.6 * plan.traffic:
            x = side * (plan.half_road_m - 1.0)
            add_car(build, rng, plan, x, start + float(rng.uniform(0, 6)), 0.0, away=side < 0)
    if rng.random() < 0.4 * plan.traffic:
        x = plan.half_road_m * 0.42
        add_car(build, rng, plan, x, start + float(rng.uniform(0, 6)), -CAMERA_SPEED_M_S, away=False)


def add_car(build: Builder, rng: np.random.Generator, plan: Plan, x: float, z: float, speed: float, away: bool) -> None:
    """Add a car or van whose nearest bumper is at `z`."""
    van = rng.random() < 0.15
    shape = CarShape(
        x=x,
        z=z,
        half=0.95 if van else 0.86,
        long=4.8 if van else 4.2,
        tall=float(rng.uniform(1.9, 2.3)) if van else float(rng.uniform(1.38, 1.6)),
        lean=0.15 if van else float(rng.uniform(0.4, 0.8)),
        boot=0.05 if van else float(rng.uniform(0.05, 0.7)),
        bonnet=0.7 if van else 1.1,
    )
    paint = pick(rng, _PAINT, 12)
    build.place(Layer.STREET, z, float(rng.random()), speed)
    shadow = ground_patch(x, z + shape.long / 2, shape.half + 0.25, shape.long / 2 + 0.3)
    build.face(shadow, ROAD, (34, 34, 36), Surface.SHADOW)
    _flank(build, shape, 1 if x < plan.camera_x_m else -1, paint)
    _cabin(build, shape, paint, jitter(rng, _GLASS, 16))
    _tail(build, shape, paint, away)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarShape:
    """Measures of a car, in metres; its nearest bumper is at (x, z)."""

    x: float
    z: float
    half: float
    long: float
    tall: float
    lean: float
    boot: float
    bonnet: float

    @property
    def waist(self) -> float:
        """Height of the lower edge of the windows."""
        return self.tall * 0.6

    @property
    def roof(self) -> float:
        """Half the width of the roof."""
        return self.half * 0.8


def _flank(build: Builder, car: CarShape, side: int, paint: Colour) -> None:
    low, high = car.x + side * car.half, car.x + side * car.roof
    start, end, waist = car.z + car.boot, car.z + car.long - car.bonnet, car.waist
    outline = [
        (0, 0.25),
        (car.long, 0.25),
        (car.long, waist - 0.15),
        (car.long - car.bonnet, waist),
        (0, waist),
    ]
    build.face([(low, y, car.z + dz) for dz, y in outline], CAR, dim(paint, 0.82))
    top = car.tall - 0.03
    pillars: list[Point] = [
        (low, waist, start),
        (low, waist, end),
        (high, top, end - 1.2 * car.lean),
        (high, top, start + car.lean),
    ]
    build.face(pillars, CAR, dim(paint, 0.86))
    sill, lintel = waist + 0.03, top - 0.1
    inner = low + (high - low) * 0.75
    panes: list[Point] = [
        (low, sill, start + 0.2),
        (low, sill, end - 0.2),
        (inner, lintel, end - 0.15 - 1.1 * car.lean),
        (inner, lintel, start + 0.15 + car.lean),
    ]
    build.face(panes, CAR, dim(_GLASS, 0.9))
    for hub in (0.8, car.long - 0.85):
        build.face([(low, y, car.z + dz) for dz, y in disc(hub, 0.32, 0.32, 0.32)], CAR, (24, 24, 26))
        build.face([(low, y, car.z + dz) for dz, y in disc(hub, 0.32, 0.17, 0.17, 8)], CAR, (128, 130, 132))


def _cabin(build: Builder, car: CarShape, paint: Colour, glass: Colour) -> None:
    x, half, roof, waist, start = car.x, car.half, car.roof, car.waist, car.z + car.boot
    top = start + car.lean
    lid: list[Point] = [(x - half, waist - 0.02, car.z), (x + half, waist - 0.02, car.z)]
    build.face([*lid, (x + half, waist, start), (x - half, waist, start)], CAR, dim(paint, 1.15))
    shell: list[Point] = [(x - half, waist, start), (x + half, waist, start)]
    shell += [(x + roof, car.tall - 0.05, top), (x + roof - 0.14, car.tall, top + 0.1)]
    shell += [(x - roof + 0.14, car.tall, top + 0.1), (x - roof, car.tall - 0.05, top)]
    build.face(shell, CAR, dim(paint, 0.92))
    pane: list[Point] = [(x - half + 0.12, waist + 0.04, start), (x + half - 0.12, waist + 0.04, start)]
    pane += [(x + roof - 0.08, car.tall - 0.12, top), (x - roof + 0.08, car.tall - 0.12, top)]
    build.face(pane, CAR, glass)


def _tail(build: Builder, car: CarShape, paint: Colour, away: bool) -> None:
    """Add the end that faces the camera: bumper, lamps, plate, wheels."""
    x, z, half, waist = car.x, car.z, car.half, car.waist
    for wheel in (-1, 1):
        hub = x + wheel * (half - 0.14)
        build.front(rectangle(hub - 0.11, hub + 0.11, 0, 0.35), z + 0.1, CAR, (22, 22, 24))
    body = [(x - half + 0.05, 0.22), (x + half - 0.05, 0.22), (x + half, 0.5), (x + half, waist - 0.1)]
    body += [(x + half - 0.08, waist), (x - half + 0.08, waist), (x - half, waist - 0.1), (x - half, 0.5)]
    build.front(body, z, CAR, paint)
    build.front(rectangle(x - half + 0.06, x + half - 0.06, 0.24, 0.42), z, CAR, dim(paint, 0.55))
    lamp: Colour = (168, 30, 30) if away else (236, 236, 222)
    for wheel in (-1, 1):
        hub = x + wheel * (half - 0.2)
        build.front(rectangle(hub - 0.16, hub + 0.16, 0.58, 0.74), z, CAR, lamp)
    build.front(rectangle(x - 0.26, x + 0.26, 0.42, 0.54), z, CAR, (214, 190, 70) if away else (226, 226, 222))


def lead_car(plan: Plan) -> Chunk:
    """Return the car that drives ahead, at z = 0."""
    rng = np.random.default_rng([plan.seed, 3])
    build = Builder()
    add_car(build, rng, plan, plan.camera_x_m + float(rng.uniform(-0.3, 0.3)), 0.0, 0.0, away=True)
    return build.finish(0.0, (False, False), False, (0.0, 0.0))
