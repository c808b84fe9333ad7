"""Faces: the coloured polygons, in metres, of which a street is built.

Coordinates: x to the right of the road's centre line, y up from the road, z along the road.
"""

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from gearshift.paths.data.classes import CAMVID_CLASSES

SKY, BUILDING, POLE, ROAD, PAVEMENT, TREE, SIGN, FENCE, CAR, PEDESTRIAN, BICYCLIST = range(len(CAMVID_CLASSES))

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
class Chunk:
    """The faces of one chunk, as flat tables: `f` faces over `p` points."""

    points: np.ndarray  # (p, 3) float32, metres
    sizes: np.ndarray  # (f,) points of each face
    labels: np.ndarray  # (f,) class ids
    colours: np.ndarray  # (f, 3) float32, 0..255 before light
    surfaces: np.ndarray  # (f,) Surface
    along: np.ndarray  # (f,) true where the face runs along the road: its first two points are its near and far end
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
        self.rows.append((len(points), label, colour, surface, along, self.salt, self.layer, self.depth, self.speed))

    def front(self, outline: Outline, z: float, label: int, colour: Colour, surface: int = Surface.PLAIN) -> None:
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
        self.face([(x, low, near), (x, low, far), (x, high, far), (x, high, near)], label, colour, surface, True)

    def finish(self, passed_s: float, park: tuple[bool, bool], junction: bool, eaves: tuple[float, float]) -> Chunk:
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


def ground_patch(x: float, z: float, half_x: float, half_z: float) -> list[Point]:
    """Return an octagon on the ground, as a shadow."""
    return [(x + dx * half_x, 0.0, z + dz * half_z) for dx, dz in _OCTAGON]


_OCTAGON: Outline = disc(0, 0, 1, 1, 8)


def jitter(rng: np.random.Generator, colour: Colour, spread: float = 14) -> Colour:
    """Vary a colour: mostly its lightness, a little its hue."""
    shift = rng.uniform(-spread, spread) + rng.uniform(-spread / 3, spread / 3, 3)
    red, green, blue = np.clip(np.array(colour) + shift, 12, 250)
    return float(red), float(green), float(blue)


def pick(rng: np.random.Generator, colours: tuple[Colour, ...], spread: float = 14) -> Colour:
    """Return one of the colours, varied."""
    return jitter(rng, colours[int(rng.integers(len(colours)))], spread)


def dim(colour: Colour, factor: float) -> Colour:
    """Scale the brightness of a colour."""
    return colour[0] * factor, colour[1] * factor, colour[2] * factor
