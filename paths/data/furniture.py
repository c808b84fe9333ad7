"""What stands on the pavement: trees, lamp posts, bollards, signs, traffic lights."""

import numpy as np

from gearshift.paths.data.faces import FENCE, POLE, SIGN, Builder, Layer, Surface, dim, disc, pick, rectangle
from gearshift.paths.data.plan import Plan
from gearshift.paths.data.plots import add_tree

CAR_M = 5.0


def add_furniture(build: Builder, rng: np.random.Generator, plan: Plan, side: int, start: float, park: bool) -> None:
    """Add what one side of a chunk has at its kerb."""
    kerb = side * (plan.half_road_m + 0.35)
    if rng.random() < (0.3 if park else 0.22):
        add_tree(build, rng, kerb + side * 0.4, start + float(rng.uniform(2, 10)), Layer.STREET, 0.8)
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
        for step in range(6, 0, -1):
            z = start + step * 1.5
            build.place(Layer.STREET, z + CAR_M, 0.4)  # behind a car that stands beside it
            build.side(kerb, (z, z + 1.5), (0.1, 1.05), FENCE, (120, 122, 124), Surface.RAILING)


def _lamp(build: Builder, rng: np.random.Generator, x: float, side: int, z: float) -> None:
    height = float(rng.uniform(5, 8.5))
    colour = pick(rng, ((86, 88, 90), (60, 66, 64), (128, 126, 120)), 12)
    build.place(Layer.STREET, z, float(rng.random()))
    build.front(rectangle(x - 0.1, x + 0.1, 0, 1.2), z, POLE, dim(colour, 0.9))
    build.front(rectangle(x - 0.065, x + 0.065, 1.2, height), z, POLE, colour)
    if rng.random() < 0.7:
        reach = x - side * float(rng.uniform(0.8, 1.6))
        arm = [(x, height - 0.1), (reach, height + 0.12), (reach, height + 0.24), (x, height + 0.02)]
        build.front(arm, z, POLE, colour)
        head = rectangle(min(reach, reach - side * 0.5), max(reach, reach - side * 0.5), height, height + 0.24)
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
        board = blue if kind == 3 else pick(rng, ((212, 196, 60), (228, 228, 224), (46, 104, 66)), 14)
        build.front(rectangle(x - size, x + size, top - size * 0.8, top + size * 0.9), z, SIGN, board)
        ink = (60.0, 60.0, 60.0) if sum(board) > 480 else white
        build.front(rectangle(x - size * 0.7, x + size * 0.7, top, top + size * 0.25), z, SIGN, ink)


def add_lights(build: Builder, rng: np.random.Generator, plan: Plan, start: float) -> None:
    """Add the traffic lights of a junction."""
    lamp = int(rng.integers(3))
    for side in (1, -1):
        x, z = side * (plan.half_road_m + 0.5), start - 0.5
        build.place(Layer.STREET, z, float(rng.random()))
        build.front(rectangle(x - 0.07, x + 0.07, 0, 2.4), z, POLE, (52, 54, 54))
        build.front(rectangle(x - 0.24, x + 0.24, 2.3, 3.4), z, SIGN, (34, 34, 36))
        colour = ((230.0, 60.0, 50.0), (240.0, 180.0, 60.0), (70.0, 230.0, 150.0))[lamp]
        build.front(disc(x, 3.15 - 0.3 * lamp, 0.13, 0.13, 8), z, SIGN, colour)
