"""What stands along a procedural street: faces in metres, one chunk of road at a time.

Coordinates: x to the right of the road's centre line, y up from the road, z along the road. A chunk depends
on the seed and its number alone, so that any frame can be drawn first. Vehicles keep to the left. Whatever
moves is placed by when the camera passes its chunk; it is therefore never seen far from it.
"""

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Self

import numpy as np

from gearshift.paths.data.classes import CAMVID_CLASSES

SKY, BUILDING, POLE, ROAD, PAVEMENT, TREE, SIGN, FENCE, CAR, PEDESTRIAN, BICYCLIST = range(
    len(CAMVID_CLASSES)
)

CHUNK_M = 12.0
STOREY_M = 2.9
PARKING_HALF_ROAD_M = 3.9  # narrower streets have no room for parked cars
CAMERA_SPEED_M_S = 8.0
CHUNK_BIAS = 1 << 20  # the street reaches behind its start, and seeds are hashed from natural numbers

Colour = tuple[float, float, float]
Point = tuple[float, float, float]
Outline = list[tuple[float, float]]


class Surface(IntEnum):
    """How a face is shaded."""

    PLAIN = 0
    FOLIAGE = 1
    BRICK = 2
    FACADE = 3
    RAILING = 4
    SHADOW = 5
    TWIGS = 6


class Layer(IntEnum):
    """Drawing order: on a straight street nothing of a later layer is hidden by an earlier one."""

    BACKDROP = 0
    PLOT = 1
    BOUNDARY = 2
    STREET = 3


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
        half_road = float(rng.uniform(2.9, 4.7))
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
            density=float(rng.uniform(0.55, 1.0)),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The faces of one chunk, as flat tables: `f` faces over `p` points."""

    points: np.ndarray  # (p, 3) float32, metres
    sizes: np.ndarray  # (f,) points of each face
    labels: np.ndarray  # (f,) class ids
    colours: np.ndarray  # (f, 3) float32, 0..255 before light
    surfaces: np.ndarray  # (f,) Surface
    along: (
        np.ndarray
    )  # (f,) true where the face runs along the road: its first two points are its near and far end
    salts: np.ndarray  # (f,) float32 in 0..1, for variation in the shader
    layers: np.ndarray  # (f,) Layer
    depths: np.ndarray  # (f,) float32, z of the object for the drawing order
    speeds: np.ndarray  # (f,) float32, metres a second along z
    passed_s: float  # when the camera passes
    park: tuple[bool, bool]  # green plots on the left and on the right
    junction: bool
    eaves: tuple[float, float]  # height of what throws shade, left and right


@dataclass(slots=True)
class Builder:
    """Collects the faces of a chunk."""

    points: list[Point] = field(default_factory=list)
    rows: list[tuple[int, int, Colour, int, bool, float, int, float, float]] = field(default_factory=list)
    layer: int = Layer.STREET
    depth: float = 0.0
    speed: float = 0.0
    salt: float = 0.0

    def place(self, layer: Layer, depth: float, salt: float, speed: float = 0.0) -> None:
        """Open the next object: what follows is drawn in order, behind what is nearer in the same layer."""
        self.layer, self.depth, self.salt, self.speed = layer, depth, salt, speed

    def face(
        self,
        points: list[Point],
        label: int,
        colour: Colour,
        surface: int = Surface.PLAIN,
        along: bool = False,
    ) -> None:
        """Add a polygon."""
        self.points += points
        self.rows.append(
            (len(points), label, colour, surface, along, self.salt, self.layer, self.depth, self.speed)
        )

    def front(
        self, outline: Outline, z: float, label: int, colour: Colour, surface: int = Surface.PLAIN
    ) -> None:
        """Add a polygon that faces the camera, given in x and y."""
        self.face([(x, y, z) for x, y in outline], label, colour, surface)

    def side(
        self,
        x: float,
        z: tuple[float, float],
        y: tuple[float, float],
        label: int,
        colour: Colour,
        surface: int,
    ) -> None:
        """Add an upright rectangle along the road."""
        (near, far), (low, high) = z, y
        self.face(
            [(x, low, near), (x, low, far), (x, high, far), (x, high, near)], label, colour, surface, True
        )

    def finish(
        self, passed_s: float, park: tuple[bool, bool], junction: bool, eaves: tuple[float, float]
    ) -> Chunk:
        """Return the tables."""
        sizes, labels, colours, surfaces, along, salts, layers, depths, speeds = zip(*self.rows, strict=True)
        return Chunk(
            points=np.array(self.points, np.float32),
            sizes=np.array(sizes, np.int64),
            labels=np.array(labels, np.uint8),
            colours=np.array(colours, np.float32),
            surfaces=np.array(surfaces, np.uint8),
            along=np.array(along, np.bool_),
            salts=np.array(salts, np.float32),
            layers=np.array(layers, np.int64),
            depths=np.array(depths, np.float32),
            speeds=np.array(speeds, np.float32),
            passed_s=passed_s,
            park=park,
            junction=junction,
            eaves=eaves,
        )


def rectangle(x0: float, x1: float, y0: float, y1: float) -> Outline:
    """Return an upright rectangle in x and y."""
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def disc(x: float, y: float, radius_x: float, radius_y: float, count: int = 10) -> Outline:
    """Return an ellipse in x and y."""
    turn = 2 * math.pi / count
    return [(x + radius_x * math.cos(i * turn), y + radius_y * math.sin(i * turn)) for i in range(count)]


def _zone(plan: Plan, chunk: int) -> tuple[tuple[bool, bool], bool]:
    """Return which sides are green, constant over some chunks, and whether a side street meets here."""
    block = np.random.default_rng([plan.seed, 1, (chunk + CHUNK_BIAS) // 5])
    left, right = (bool(green) for green in block.random(2) < plan.leafy)
    if left and right and block.random() < 0.6:
        left = False
    junction = (chunk + CHUNK_BIAS) % 5 == 0 and bool(block.random() < 0.55)
    return (left, right), junction


def build_chunk(plan: Plan, chunk: int) -> Chunk:
    """Build chunk number `chunk` of a street; the same number always gives the same chunk."""
    rng = np.random.default_rng([plan.seed, 2, chunk + CHUNK_BIAS])
    start = chunk * CHUNK_M
    park, junction = _zone(plan, chunk)
    build = Builder()
    eaves = [0.0, 0.0]
    for index, side in enumerate((-1, 1)):
        if junction:
            _backdrop(build, rng, plan, side, start)
        elif park[index]:
            _park(build, rng, plan, side, start)
            eaves[index] = 4.0
        else:
            eaves[index] = _terrace(build, rng, plan, side, start)
        if not junction:
            _furniture(build, rng, plan, side, start, park[index])
        _people(build, rng, plan, side, start)
    _traffic(build, rng, plan, start)
    if junction:
        _lights(build, rng, plan, start)
    passed = start / CAMERA_SPEED_M_S
    return build.finish(passed, park, junction, (eaves[0], eaves[1]))


# --- plots

_WALLS: tuple[Colour, ...] = (
    (150, 92, 72),
    (128, 82, 66),
    (196, 178, 142),
    (214, 204, 184),
    (168, 150, 122),
    (186, 186, 182),
    (110, 98, 92),
    (222, 216, 208),
    (140, 120, 100),
    (172, 122, 92),
)
_ROOFS: tuple[Colour, ...] = ((96, 74, 66), (84, 84, 92), (120, 82, 66), (70, 70, 74))


def _jitter(rng: np.random.Generator, colour: Colour, spread: float = 14) -> Colour:
    shift = rng.uniform(-spread, spread) + rng.uniform(-spread / 3, spread / 3, 3)
    red, green, blue = np.clip(np.array(colour) + shift, 12, 250)
    return float(red), float(green), float(blue)


def _pick(rng: np.random.Generator, colours: tuple[Colour, ...], spread: float = 14) -> Colour:
    return _jitter(rng, colours[int(rng.integers(len(colours)))], spread)


def _dim(colour: Colour, factor: float) -> Colour:
    return colour[0] * factor, colour[1] * factor, colour[2] * factor


def _terrace(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float) -> float:
    """Put one or two houses on a plot; return their height."""
    edge = plan.half_road_m + plan.pavement_m
    cuts = [0.0, 1.0] if rng.random() < 0.5 else [0.0, float(rng.uniform(0.4, 0.6)), 1.0]
    tallest = 0.0
    for low, high in zip(cuts[-2::-1], cuts[:0:-1], strict=True):
        near, far = start + low * CHUNK_M, start + high * CHUNK_M
        if rng.random() > 0.45 + 0.55 * plan.density:
            _tree(build, rng, side * (edge + rng.uniform(1.5, 4)), (near + far) / 2, Layer.PLOT)
            _backdrop(build, rng, plan, side, near, far - near)
            continue
        setback = 0.0 if rng.random() < 0.6 else float(rng.uniform(0.5, 3.0))
        height = float(rng.choice([2, 3, 3, 4, 4, 5])) * STOREY_M + float(rng.uniform(0.2, 1.2))
        _house(build, rng, side, (near, far), edge + setback, height)
        if setback > 1.2 and rng.random() < 0.7:
            _boundary(build, rng, side * (edge + 0.1), (near, far))
        tallest = max(tallest, height)
    return tallest


def _house(
    build: Builder, rng: np.random.Generator, side: int, z: tuple[float, float], setback: float, height: float
) -> None:
    near, far = z
    wall, roof = _pick(rng, _WALLS), _pick(rng, _ROOFS)
    x, back = side * setback, side * (setback + 9.0)
    build.place(Layer.PLOT, near, float(rng.random()))
    build.front(rectangle(x, back, 0, height), near, BUILDING, _dim(wall, 0.8), Surface.BRICK)
    if rng.random() < 0.55:
        ridge_x, ridge_y = side * (setback + 4.0), height + float(rng.uniform(1.6, 3.0))
        build.front([(x, height), (back, height), (ridge_x, ridge_y)], near, BUILDING, _dim(wall, 0.78), 2)
        slope: list[Point] = [
            (x, height, near),
            (x, height, far),
            (ridge_x, ridge_y, far),
            (ridge_x, ridge_y, near),
        ]
        build.face(slope, BUILDING, roof, Surface.BRICK, True)
        if rng.random() < 0.6:
            chimney = rectangle(ridge_x - 0.5, ridge_x + 0.5, ridge_y - 0.6, ridge_y + 1.0)
            build.front(chimney, near + 0.5, BUILDING, _dim(wall, 0.85), Surface.BRICK)
    build.side(x, (near, far), (0, height), BUILDING, wall, Surface.FACADE)
    build.side(
        x - side * 0.2, (near, far), (height - 0.35, height), BUILDING, _dim(wall, 1.12), Surface.PLAIN
    )


def _backdrop(
    build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float, length: float = CHUNK_M
) -> None:
    """Close the view into a gap: a wall of houses and crowns some way off."""
    setback = plan.half_road_m + plan.pavement_m + float(rng.uniform(10, 16))
    height = float(rng.uniform(5, 10))
    wall = _pick(rng, _WALLS)
    build.place(Layer.BACKDROP, start, float(rng.random()))
    build.front(
        rectangle(side * setback, side * (setback + 14), 0, height), start, BUILDING, wall, Surface.BRICK
    )
    build.side(side * setback, (start, start + length), (0, height), BUILDING, wall, Surface.FACADE)


_LEAVES: tuple[Colour, ...] = ((70, 84, 50), (86, 94, 56), (60, 74, 50), (104, 96, 64), (78, 86, 64))
_BARE: tuple[Colour, ...] = ((106, 92, 80), (92, 82, 74), (120, 104, 86))


def _park(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float) -> None:
    edge = plan.half_road_m + plan.pavement_m
    if rng.random() < 0.5:
        _backdrop(build, rng, plan, side, start)
    for offset in sorted(rng.uniform(0, CHUNK_M, int(rng.integers(2, 4))), reverse=True):
        _tree(build, rng, side * (edge + float(rng.uniform(1.2, 6.0))), start + float(offset), Layer.PLOT)
    hedge = float(rng.uniform(0.6, 2.2))
    if rng.random() < 0.55:
        build.place(Layer.PLOT, start - 1, float(rng.random()))
        shade = _pick(rng, _LEAVES)
        build.side(side * (edge + 1.0), (start, start + CHUNK_M), (0, hedge), TREE, shade, Surface.FOLIAGE)
    if rng.random() < 0.8:
        _boundary(build, rng, side * (edge + 0.1), (start, start + CHUNK_M))


def _boundary(build: Builder, rng: np.random.Generator, x: float, z: tuple[float, float]) -> None:
    build.place(Layer.BOUNDARY, z[0], float(rng.random()))
    height = float(rng.uniform(0.9, 1.8))
    if rng.random() < 0.6:
        colour = _pick(rng, ((46, 48, 50), (66, 74, 62), (96, 98, 100)), 10)
        build.side(x, z, (0, height), FENCE, colour, Surface.RAILING)
    else:
        colour = _pick(rng, ((122, 96, 70), (146, 128, 104), (104, 84, 66)))
        build.side(x, z, (0, height), FENCE, colour, Surface.BRICK)


def _blob(rng: np.random.Generator, x: float, y: float, radius_x: float, radius_y: float) -> Outline:
    count = 18
    turn = np.arange(count) * (2 * math.pi / count)
    rough = 1 + rng.uniform(-0.2, 0.14, count) + 0.1 * np.sin(3 * turn + rng.uniform(0, 6))
    xs, ys = x + radius_x * rough * np.cos(turn), y + radius_y * rough * np.sin(turn)
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def _tree(
    build: Builder, rng: np.random.Generator, x: float, z: float, layer: Layer, size: float = 1.0
) -> None:
    bare = rng.random() < 0.35
    shade = _pick(rng, _BARE if bare else _LEAVES, 10)
    surface = Surface.TWIGS if bare else Surface.FOLIAGE
    bole = size * float(rng.uniform(1.6, 2.8))
    radius = size * float(rng.uniform(1.5, 2.9))
    tall = radius * float(rng.uniform(0.9, 1.5))
    middle = bole + tall * 0.8
    width = 0.12 + 0.08 * radius
    build.place(layer, z, float(rng.random()))
    trunk = [(x - width, 0.0), (x + width, 0.0), (x + width * 0.7, middle), (x - width * 0.6, middle)]
    build.front(trunk, z, TREE, _pick(rng, ((84, 68, 54), (100, 88, 74)), 8))
    build.front(_blob(rng, x, middle, radius, tall), z, TREE, shade, surface)
    for _ in range(4):
        dx, dy = rng.uniform(-0.6, 0.6, 2)
        part = _blob(rng, x + dx * radius, middle + dy * tall, radius * 0.5, tall * 0.42)
        build.front(part, z, TREE, _dim(shade, 0.86 + 0.36 * (dy + 0.5)), surface)


# --- street furniture


def _furniture(
    build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float, park: bool
) -> None:
    kerb = side * (plan.half_road_m + 0.35)
    if rng.random() < (0.3 if park else 0.22):
        _tree(build, rng, kerb + side * 0.4, start + float(rng.uniform(2, 10)), Layer.STREET, 0.8)
    if rng.random() < 0.55:
        _lamp(build, rng, kerb, side, start + float(rng.uniform(0, 4)))
    if rng.random() < 0.5:
        _signpost(build, rng, kerb + side * 0.2, start + float(rng.uniform(5, 11)))
    if rng.random() < 0.2:
        for step in range(4, 0, -1):
            z = start + step * 1.9
            build.place(Layer.STREET, z, 0.5)
            build.front(rectangle(kerb - 0.07, kerb + 0.07, 0, 1.0), z, POLE, (58, 58, 60))
    if rng.random() < 0.12:
        build.place(Layer.STREET, start + 0.5, float(rng.random()))
        build.side(kerb, (start, start + 9.0), (0.1, 1.05), FENCE, (120, 122, 124), Surface.RAILING)


def _lamp(build: Builder, rng: np.random.Generator, x: float, side: int, z: float) -> None:
    height = float(rng.uniform(5, 8.5))
    colour = _pick(rng, ((86, 88, 90), (60, 66, 64), (128, 126, 120)), 12)
    build.place(Layer.STREET, z, float(rng.random()))
    build.front(rectangle(x - 0.1, x + 0.1, 0, 1.2), z, POLE, _dim(colour, 0.9))
    build.front(rectangle(x - 0.065, x + 0.065, 1.2, height), z, POLE, colour)
    if rng.random() < 0.7:
        reach = x - side * float(rng.uniform(0.8, 1.6))
        arm = [(x, height - 0.1), (reach, height + 0.12), (reach, height + 0.24), (x, height + 0.02)]
        build.front(arm, z, POLE, colour)
        head = rectangle(
            min(reach, reach - side * 0.5), max(reach, reach - side * 0.5), height, height + 0.24
        )
        build.front(head, z, POLE, (170, 168, 160))


def _signpost(build: Builder, rng: np.random.Generator, x: float, z: float) -> None:
    top = float(rng.uniform(2.2, 3.1))
    build.place(Layer.STREET, z, float(rng.random()))
    build.front(rectangle(x - 0.05, x + 0.05, 0, top), z, POLE, (118, 118, 116))
    red, blue, white = (176, 34, 36), (38, 74, 156), (226, 226, 222)
    kind, size = int(rng.integers(5)), float(rng.uniform(0.28, 0.44))
    if kind == 0:
        build.front(disc(x, top, size, size, 14), z, SIGN, red)
        build.front(disc(x, top, size * 0.7, size * 0.7, 14), z, SIGN, white)
    elif kind == 1:
        outer = [(x - size, top - size * 0.8), (x + size, top - size * 0.8), (x, top + size)]
        inner = [
            (x - size * 0.6, top - size * 0.55),
            (x + size * 0.6, top - size * 0.55),
            (x, top + size * 0.5),
        ]
        build.front(outer, z, SIGN, red)
        build.front(inner, z, SIGN, white)
    elif kind == 2:
        build.front(disc(x, top, size, size, 14), z, SIGN, blue)
        build.front(rectangle(x - 0.06, x + 0.06, top - size * 0.6, top + size * 0.6), z, SIGN, white)
    else:
        board = blue if kind == 3 else _pick(rng, ((212, 196, 60), (228, 228, 224), (46, 104, 66)), 14)
        build.front(rectangle(x - size, x + size, top - size * 0.8, top + size * 0.9), z, SIGN, board)
        ink = (60.0, 60.0, 60.0) if sum(board) > 480 else white
        build.front(rectangle(x - size * 0.7, x + size * 0.7, top, top + size * 0.25), z, SIGN, ink)


def _lights(build: Builder, rng: np.random.Generator, plan: Plan, start: float) -> None:
    lamp = int(rng.integers(3))
    for side in (1, -1):
        x, z = side * (plan.half_road_m + 0.5), start - 0.5
        build.place(Layer.STREET, z, float(rng.random()))
        build.front(rectangle(x - 0.07, x + 0.07, 0, 2.4), z, POLE, (52, 54, 54))
        build.front(rectangle(x - 0.24, x + 0.24, 2.3, 3.4), z, SIGN, (34, 34, 36))
        colour = ((230.0, 60.0, 50.0), (240.0, 180.0, 60.0), (70.0, 230.0, 150.0))[lamp]
        build.front(disc(x, 3.15 - 0.3 * lamp, 0.13, 0.13, 8), z, SIGN, colour)


# --- people and vehicles

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


def _people(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float) -> None:
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
    coat, legs, skin = _pick(rng, _CLOTHES), _pick(rng, _CLOTHES[:4]), _pick(rng, _SKIN)
    build.place(Layer.STREET, z, float(rng.random()), speed)
    build.face(_ground_patch(x, z, 0.5, 0.4), PAVEMENT, (60, 60, 62), Surface.SHADOW)
    hip, shoulder = tall * 0.5, tall * 0.84
    for foot in (-stride, stride):
        leg = [(x + foot - 0.08, 0.0), (x + foot + 0.08, 0.0), (x + 0.15, hip), (x - 0.15, hip)]
        build.front(leg, z, PEDESTRIAN, legs)
    torso = [(x - 0.19, hip - 0.08), (x + 0.19, hip - 0.08), (x + 0.25, shoulder - 0.1), (x + 0.16, shoulder)]
    build.front([*torso, (x - 0.16, shoulder), (x - 0.25, shoulder - 0.1)], z, PEDESTRIAN, coat)
    for arm in (-1, 1):
        sleeve = rectangle(x + arm * 0.22 - 0.05, x + arm * 0.22 + 0.05, hip, shoulder - 0.06)
        build.front(sleeve, z, PEDESTRIAN, _dim(coat, 0.85))
    build.front(disc(x, tall - 0.12, 0.1, 0.14, 8), z, PEDESTRIAN, skin)
    build.front(
        disc(x, tall - 0.07, 0.1, 0.09, 8), z, PEDESTRIAN, _pick(rng, ((40, 32, 26), (96, 76, 50)), 10)
    )


def _bicyclist(build: Builder, rng: np.random.Generator, x: float, z: float, speed: float) -> None:
    coat, legs = _pick(rng, (*_CLOTHES, (214, 220, 60))), _pick(rng, _CLOTHES[:4])
    build.place(Layer.STREET, z, float(rng.random()), speed)
    build.face(_ground_patch(x, z, 0.5, 1.6), ROAD, (50, 50, 52), Surface.SHADOW)
    build.front(disc(x, 0.34, 0.07, 0.34), z, BICYCLIST, (28, 28, 30))
    build.front(rectangle(x - 0.05, x + 0.05, 0.5, 1.0), z, BICYCLIST, _pick(rng, _PAINT))
    build.front(rectangle(x - 0.3, x + 0.3, 0.96, 1.02), z, BICYCLIST, (40, 40, 42))
    for leg, low in ((-1, 0.25), (1, 0.45)):
        shin = [(x + leg * 0.1, low), (x + leg * 0.2, low), (x + leg * 0.22, 1.0), (x + leg * 0.02, 1.0)]
        build.front(shin, z, BICYCLIST, legs)
    torso = [(x - 0.18, 0.9), (x + 0.18, 0.9), (x + 0.26, 1.4), (x + 0.14, 1.55), (x - 0.14, 1.55)]
    build.front([*torso, (x - 0.26, 1.4)], z, BICYCLIST, coat)
    for arm in (-1, 1):
        sleeve = [(x + arm * 0.2, 1.4), (x + arm * 0.28, 1.35), (x + arm * 0.32, 1.0), (x + arm * 0.25, 1.0)]
        build.front(sleeve, z, BICYCLIST, _dim(coat, 0.85))
    build.front(disc(x, 1.7, 0.11, 0.15, 8), z, BICYCLIST, _pick(rng, _SKIN))
    build.front(disc(x, 1.75, 0.13, 0.12, 8), z, BICYCLIST, _pick(rng, _CLOTHES))


def _traffic(build: Builder, rng: np.random.Generator, plan: Plan, start: float) -> None:
    for side in (-1, 1):
        if plan.half_road_m > PARKING_HALF_ROAD_M and rng.random() < 0.6 * plan.traffic:
            x = side * (plan.half_road_m - 1.0)
            parked_car(build, rng, plan, x, start + float(rng.uniform(0, 6)), 0.0, away=side < 0)
    if rng.random() < 0.4 * plan.traffic:
        x = plan.half_road_m * 0.42
        parked_car(build, rng, plan, x, start + float(rng.uniform(0, 6)), -CAMERA_SPEED_M_S, away=False)


def lead_car(plan: Plan) -> Chunk:
    """Return the car that drives ahead, at z = 0."""
    rng = np.random.default_rng([plan.seed, 3])
    build = Builder()
    parked_car(build, rng, plan, plan.camera_x_m + float(rng.uniform(-0.3, 0.3)), 0.0, 0.0, away=True)
    return build.finish(0.0, (False, False), False, (0.0, 0.0))


def parked_car(
    build: Builder, rng: np.random.Generator, plan: Plan, x: float, z: float, speed: float, away: bool
) -> None:
    """Add a car or van whose nearest bumper is at `z`."""
    paint = _pick(rng, _PAINT, 12)
    van = rng.random() < 0.15
    tall, long = (float(rng.uniform(1.9, 2.3)), 4.8) if van else (float(rng.uniform(1.38, 1.6)), 4.2)
    half, waist = (0.95 if van else 0.86), tall * 0.6
    flank = x + (half if x < plan.camera_x_m else -half)
    build.place(Layer.STREET, z, float(rng.random()), speed)
    build.face(
        _ground_patch(x, z + long / 2, half + 0.25, long / 2 + 0.3), ROAD, (34, 34, 36), Surface.SHADOW
    )
    _flank(build, flank, z, (long, tall, waist), paint, van)
    cabin_z = z + (0.05 if van else 0.55)
    roof = half * 0.74
    cabin = [
        (x - half, waist - 0.05),
        (x + half, waist - 0.05),
        (x + roof, tall - 0.04),
        (x + roof - 0.15, tall),
    ]
    build.front([*cabin, (x - roof + 0.15, tall), (x - roof, tall - 0.04)], cabin_z, CAR, _dim(paint, 0.9))
    pane = [(x - half + 0.1, waist), (x + half - 0.1, waist), (x + roof - 0.08, tall - 0.12)]
    build.front([*pane, (x - roof + 0.08, tall - 0.12)], cabin_z, CAR, _jitter(rng, _GLASS, 16))
    lid: list[Point] = [
        (x - half, waist - 0.04, z),
        (x + half, waist - 0.04, z),
        (x + half, waist, cabin_z),
        (x - half, waist, cabin_z),
    ]
    build.face(lid, CAR, _dim(paint, 1.15))
    for wheel in (-1, 1):
        tyre = rectangle(x + wheel * (half - 0.14) - 0.11, x + wheel * (half - 0.14) + 0.11, 0, 0.35)
        build.front(tyre, z + 0.1, CAR, (22, 22, 24))
    body = [(x - half + 0.05, 0.22), (x + half - 0.05, 0.22), (x + half, 0.5), (x + half, waist - 0.1)]
    body += [(x + half - 0.08, waist), (x - half + 0.08, waist), (x - half, waist - 0.1), (x - half, 0.5)]
    build.front(body, z, CAR, paint)
    build.front(rectangle(x - half + 0.06, x + half - 0.06, 0.24, 0.42), z, CAR, _dim(paint, 0.55))
    lamp: Colour = (168, 30, 30) if away else (236, 236, 222)
    for wheel in (-1, 1):
        light = rectangle(x + wheel * (half - 0.2) - 0.16, x + wheel * (half - 0.2) + 0.16, 0.58, 0.74)
        build.front(light, z, CAR, lamp)
    build.front(
        rectangle(x - 0.26, x + 0.26, 0.42, 0.54), z, CAR, (214, 190, 70) if away else (226, 226, 222)
    )


def _flank(
    build: Builder, x: float, z: float, size: tuple[float, float, float], paint: Colour, van: bool
) -> None:
    long, tall, waist = size
    lean = 0.1 if van else 0.75
    outline = [
        (0, 0.25),
        (long, 0.25),
        (long, waist - 0.1),
        (long - lean * 1.3, waist),
        (long - lean * 2, tall),
    ]
    outline += [(lean * 1.3, tall), (lean * 0.6, waist), (0, waist - 0.05)]
    build.face([(x, y, z + dz) for dz, y in outline], CAR, _dim(paint, 0.82))
    glass = [(lean * 0.9, waist), (long - lean * 1.6, waist), (long - lean * 2.05, tall - 0.1)]
    glass += [(lean * 1.4, tall - 0.1)]
    build.face([(x, y, z + dz) for dz, y in glass], CAR, _dim(_GLASS, 0.9))
    for hub in (0.75, long - 0.8):
        build.face([(x, y, z + dz) for dz, y in disc(hub, 0.32, 0.32, 0.32)], CAR, (24, 24, 26))
        build.face([(x, y, z + dz) for dz, y in disc(hub, 0.32, 0.17, 0.17, 8)], CAR, (128, 130, 132))


def _ground_patch(x: float, z: float, half_x: float, half_z: float) -> list[Point]:
    return [(x + dx * half_x, 0.0, z + dz * half_z) for dx, dz in _OCTAGON]


_OCTAGON: Outline = disc(0, 0, 1, 1, 8)
