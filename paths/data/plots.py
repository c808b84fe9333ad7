"""What stands beyond the pavement: houses, parks, fences, trees."""

import math

import numpy as np

from gearshift.paths.data.faces import (
    BUILDING,
    FENCE,
    TREE,
    Builder,
    Colour,
    Layer,
    Outline,
    Point,
    Surface,
    dim,
    pick,
    rectangle,
)
from gearshift.paths.data.plan import CHUNK_M, STOREY_M, Plan

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


def add_terrace(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float) -> float:
    """Put one or two houses on a plot; return their height."""
    edge = plan.half_road_m + plan.pavement_m
    cuts = [0.0, 1.0] if rng.random() < 0.5 else [0.0, float(rng.uniform(0.4, 0.6)), 1.0]
    tallest = 0.0
    for low, high in zip(cuts[-2::-1], cuts[:0:-1], strict=True):
        near, far = start + low * CHUNK_M, start + high * CHUNK_M
        if rng.random() > 0.45 + 0.55 * plan.density:
            add_tree(build, rng, side * (edge + rng.uniform(1.5, 4)), (near + far) / 2, Layer.PLOT)
            add_backdrop(build, rng, plan, side, near, far - near)
            continue
        setback = 0.0 if rng.random() < 0.6 else float(rng.uniform(0.5, 3.0))
        height = float(rng.choice([2, 3, 3, 4, 4, 5])) * STOREY_M + float(rng.uniform(0.2, 1.2))
        _house(build, rng, side, (near, far), edge + setback, height)
        if setback > 1.2 and rng.random() < 0.7:
            add_boundary(build, rng, side * (edge + 0.1), (near, far))
        tallest = max(tallest, height)
    return tallest


def _house(
    build: Builder, rng: np.random.Generator, side: int, z: tuple[float, float], setback: float, height: float
) -> None:
    near, far = z
    wall, roof = pick(rng, _WALLS), pick(rng, _ROOFS)
    x, back = side * setback, side * (setback + 9.0)
    build.place(Layer.PLOT, near, float(rng.random()))
    build.front(rectangle(x, back, 0, height), near, BUILDING, dim(wall, 0.8), Surface.BRICK)
    if rng.random() < 0.55:
        ridge_x, ridge_y = side * (setback + 4.0), height + float(rng.uniform(1.6, 3.0))
        build.front([(x, height), (back, height), (ridge_x, ridge_y)], near, BUILDING, dim(wall, 0.78), 2)
        slope: list[Point] = [
            (x, height, near),
            (x, height, far),
            (ridge_x, ridge_y, far),
            (ridge_x, ridge_y, near),
        ]
        build.face(slope, BUILDING, roof, Surface.BRICK, True)
        if rng.random() < 0.6:
            chimney = rectangle(ridge_x - 0.5, ridge_x + 0.5, ridge_y - 0.6, ridge_y + 1.0)
            build.front(chimney, near + 0.5, BUILDING, dim(wall, 0.85), Surface.BRICK)
    build.side(x, (near, far), (0, height), BUILDING, wall, Surface.FACADE)
    build.side(x - side * 0.2, (near, far), (height - 0.35, height), BUILDING, dim(wall, 1.12), Surface.PLAIN)


def add_backdrop(
    build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float, length: float = CHUNK_M
) -> None:
    """Close the view into a gap: a wall of houses and crowns some way off."""
    setback = plan.half_road_m + plan.pavement_m + float(rng.uniform(10, 16))
    height = float(rng.uniform(5, 10))
    wall = pick(rng, _WALLS)
    build.place(Layer.BACKDROP, start, float(rng.random()))
    build.front(rectangle(side * setback, side * (setback + 14), 0, height), start, BUILDING, wall, Surface.BRICK)
    build.side(side * setback, (start, start + length), (0, height), BUILDING, wall, Surface.FACADE)


_LEAVES: tuple[Colour, ...] = ((70, 84, 50), (86, 94, 56), (60, 74, 50), (104, 96, 64), (78, 86, 64))
_BARE: tuple[Colour, ...] = ((106, 92, 80), (92, 82, 74), (120, 104, 86))


def add_park(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float) -> None:
    """Add a green plot: trees, perhaps a hedge, a fence and houses far behind."""
    edge = plan.half_road_m + plan.pavement_m
    if rng.random() < 0.5:
        add_backdrop(build, rng, plan, side, start)
    for offset in sorted(rng.uniform(0, CHUNK_M, int(rng.integers(2, 4))), reverse=True):
        add_tree(build, rng, side * (edge + float(rng.uniform(1.2, 6.0))), start + float(offset), Layer.PLOT)
    hedge = float(rng.uniform(0.6, 2.2))
    if rng.random() < 0.55:
        build.place(Layer.PLOT, start - 1, float(rng.random()))
        shade = pick(rng, _LEAVES)
        build.side(side * (edge + 1.0), (start, start + CHUNK_M), (0, hedge), TREE, shade, Surface.FOLIAGE)
    if rng.random() < 0.8:
        add_boundary(build, rng, side * (edge + 0.1), (start, start + CHUNK_M))


def add_boundary(build: Builder, rng: np.random.Generator, x: float, z: tuple[float, float]) -> None:
    """Add a fence along the road: railings or boards."""
    build.place(Layer.BOUNDARY, z[0], float(rng.random()))
    height = float(rng.uniform(0.9, 1.8))
    if rng.random() < 0.6:
        colour = pick(rng, ((46, 48, 50), (66, 74, 62), (96, 98, 100)), 10)
        build.side(x, z, (0, height), FENCE, colour, Surface.RAILING)
    else:
        colour = pick(rng, ((122, 96, 70), (146, 128, 104), (104, 84, 66)))
        build.side(x, z, (0, height), FENCE, colour, Surface.BRICK)


def _blob(rng: np.random.Generator, x: float, y: float, radius_x: float, radius_y: float) -> Outline:
    count = 18
    turn = np.arange(count) * (2 * math.pi / count)
    rough = 1 + rng.uniform(-0.2, 0.14, count) + 0.1 * np.sin(3 * turn + rng.uniform(0, 6))
    xs, ys = x + radius_x * rough * np.cos(turn), y + radius_y * rough * np.sin(turn)
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def add_tree(build: Builder, rng: np.random.Generator, x: float, z: float, layer: Layer, size: float = 1.0) -> None:
    """Add a tree: a trunk and an irregular crown, in leaf or bare."""
    bare = rng.random() < 0.35
    shade = pick(rng, _BARE if bare else _LEAVES, 10)
    surface = Surface.TWIGS if bare else Surface.FOLIAGE
    bole = size * float(rng.uniform(1.6, 2.8))
    radius = size * float(rng.uniform(1.5, 2.9))
    tall = radius * float(rng.uniform(0.9, 1.5))
    middle = bole + tall * 0.8
    width = 0.12 + 0.08 * radius
    build.place(layer, z, float(rng.random()))
    trunk = [(x - width, 0.0), (x + width, 0.0), (x + width * 0.7, middle), (x - width * 0.6, middle)]
    build.front(trunk, z, TREE, pick(rng, ((84, 68, 54), (100, 88, 74)), 8))
    build.front(_blob(rng, x, middle, radius, tall), z, TREE, shade, surface)
    for _ in range(4):
        dx, dy = rng.uniform(-0.6, 0.6, 2)
        part = _blob(rng, x + dx * radius, middle + dy * tall, radius * 0.5, tall * 0.42)
        build.front(part, z, TREE, dim(shade, 0.86 + 0.36 * (dy + 0.5)), surface)
