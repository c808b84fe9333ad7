"""The street, one chunk of road at a time.

A chunk depends on the seed and its number alone, so that any frame can be drawn first. Vehicles keep to the
left. Whatever moves is placed by when the camera passes its chunk; it is therefore never seen far from it.
"""

import numpy as np

from gearshift.paths.data.faces import Builder, Chunk
from gearshift.paths.data.furniture import add_furniture, add_lights
from gearshift.paths.data.plan import CAMERA_SPEED_M_S, CHUNK_BIAS, CHUNK_M, Plan
from gearshift.paths.data.plots import add_backdrop, add_park, add_terrace
from gearshift.paths.data.traffic import add_people, add_traffic


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
            add_backdrop(build, rng, plan, side, start)
        elif park[index]:
            add_park(build, rng, plan, side, start)
            eaves[index] = 4.0
        else:
            eaves[index] = add_terrace(build, rng, plan, side, start)
        if not junction:
            add_furniture(build, rng, plan, side, start, park[index])
        add_people(build, rng, plan, side, start)
    add_traffic(build, rng, plan, start)
    if junction:
        add_lights(build, rng, plan, start)
    passed = start / CAMERA_SPEED_M_S
    return build.finish(passed, park, junction, (eaves[0], eaves[1]))
