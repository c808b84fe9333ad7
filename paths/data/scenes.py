"""Rendered, labelled street scenes: an endless drive that any seed repeats exactly.

`SceneStream.frame(index)` projects the faces of `gearshift.paths.data.street` through a pinhole camera, draws
their *numbers* into one image, and shades all pixels at once from tables of classes, colours and textures
(`gearshift.paths.data.shading`). Image and labels therefore agree at every edge. No network, no files.
"""

import functools
import math

import numpy as np
from PIL import Image, ImageDraw

from gearshift.errors import DataError
from gearshift.paths.data.faces import Chunk
from gearshift.paths.data.frames import LabelledFrame
from gearshift.paths.data.plan import CAMERA_SPEED_M_S, CHUNK_M, Plan
from gearshift.paths.data.shading import Camera, Faces, Ground, shade
from gearshift.paths.data.street import build_chunk
from gearshift.paths.data.traffic import lead_car

VIEW_M = 130.0
MOVER_VIEW_M = 190.0
NEAR_M = 0.35
LONGEST_M = 6.0  # no vehicle is longer: behind this far, nothing of it is in view
LEAD_PERIOD_S = 26.0
MAX_FRAMES = 10**7  # 92 hours at 30 frames a second; float32 textures stay steady up to there
MIN_SIDE, MAX_SIDE = 16, 4096


class SceneStream:
    """A drive through the street that `seed` names.

    Frames can be asked for in any order; the same (seed, index, size, fps) gives the same bytes.

    Raises:
        DataError: A setting is out of range.
    """

    def __init__(self, *, seed: int, height: int = 360, width: int = 480, fps: float = 30.0) -> None:
        _check("seed", seed, 0, 2**63)
        _check("height", height, MIN_SIDE, MAX_SIDE)
        _check("width", width, MIN_SIDE, MAX_SIDE)
        _check("fps", fps, 0.1, 1000.0)
        self.seed, self.height, self.width, self.fps = seed, height, width, fps
        self._plan = Plan.of(seed)
        self._chunk = functools.lru_cache(maxsize=48)(functools.partial(build_chunk, self._plan))
        self._lead = lead_car(self._plan) if self._plan.lead_car else None

    def frame(self, index: int) -> LabelledFrame:
        """Return frame `index` of the drive, `index / fps` seconds after its start.

        Raises:
            DataError: `index` is negative or beyond the end of the street.
        """
        _check("frame index", index, 0, MAX_FRAMES)
        time_s = index / self.fps
        camera = self._camera(time_s)
        numbers = Image.new("I", (self.width, self.height), 0)
        faces = _project(self._gather(time_s, camera.z_m), self._plan, camera)
        _draw(numbers, faces)
        image, labels = shade(np.asarray(numbers), faces, self._ground(camera.z_m), self._plan, camera, index)
        return LabelledFrame(image=image, labels=labels)

    def _camera(self, time_s: float) -> Camera:
        focal = 1.2 * self.height
        bob = 0.0035 * math.sin(time_s * 5.3 + self.seed) + 0.002 * math.sin(time_s * 12.1)
        yaw = 0.012 * math.sin(time_s * 0.43 + self.seed) * self.height
        return Camera(
            width=self.width,
            height=self.height,
            focal_px=focal,
            centre_x_px=self.width / 2 + yaw,
            horizon_px=self.height * (self._plan.horizon + bob),
            x_m=self._plan.camera_x_m + 0.12 * math.sin(time_s * 0.31),
            y_m=self._plan.camera_y_m,
            z_m=time_s * CAMERA_SPEED_M_S,
        )

    def _gather(self, time_s: float, camera_z_m: float) -> list[tuple[Chunk, np.ndarray, np.ndarray]]:
        """Return chunks in view with the faces to draw of each and how far those have moved."""
        first = int((camera_z_m - 12) // CHUNK_M)
        static_last = int((camera_z_m + VIEW_M) // CHUNK_M)
        last = int((camera_z_m + MOVER_VIEW_M) // CHUNK_M)
        parts = []
        for number in range(first - 2, last + 1):
            chunk = self._chunk(number)
            moved = chunk.speeds * np.float32(time_s - chunk.passed_s)
            moves = chunk.speeds != 0
            keep = np.ones_like(moves) if first <= number <= static_last else moves
            depth = chunk.depths + moved - np.float32(camera_z_m)
            keep &= ~moves | ((depth > -LONGEST_M) & (depth < 0.8 * VIEW_M))
            if keep.any():
                parts.append((chunk, keep, moved))
        if self._lead is not None and (lead := self._lead_gap(time_s)) is not None:
            everything = np.ones(len(self._lead.sizes), np.bool_)
            parts.append((self._lead, everything, np.full(len(everything), camera_z_m + lead, np.float32)))
        return parts

    def _lead_gap(self, time_s: float) -> float | None:
        """Return how far ahead the leading car is; it comes and goes at the far end of its swing."""
        turn = time_s / LEAD_PERIOD_S + 0.3
        if np.random.default_rng([self.seed, 4, int(turn)]).random() < 0.4:
            return None
        return 9.0 + 80.0 * (0.5 + 0.5 * math.cos(2 * math.pi * turn)) ** 2

    def _ground(self, camera_z_m: float) -> Ground:
        first = int((camera_z_m - 12) // CHUNK_M)
        chunks = [self._chunk(number) for number in range(first, first + int(VIEW_M // CHUNK_M) + 3)]
        return Ground(
            first_chunk=first,
            park=np.array([chunk.park for chunk in chunks]),
            junction=np.array([chunk.junction for chunk in chunks]),
            eaves=np.array([chunk.eaves for chunk in chunks], np.float32),
        )


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        raise DataError(f"{name} is {value}, but a scene stream takes {low} up to, not including, {high}")


def _project(parts: list[tuple[Chunk, np.ndarray, np.ndarray]], plan: Plan, camera: Camera) -> Faces:
    """Project the faces to pixels and sort them for drawing, far ones first."""
    sizes = np.concatenate([chunk.sizes[keep] for chunk, keep, _ in parts])
    points = np.concatenate([chunk.points[np.repeat(keep, chunk.sizes)] for chunk, keep, _ in parts])
    moved = np.concatenate([moved[keep] for _, keep, moved in parts])
    salts = np.concatenate([chunk.salts[keep] for chunk, keep, _ in parts])
    world_z = points[:, 2] + np.repeat(moved, sizes)
    depth = np.maximum(world_z - np.float32(camera.z_m), np.float32(NEAR_M))
    lateral = points[:, 0] - np.float32(camera.x_m) + plan.bend(depth + camera.z_m, camera.z_m)
    x = camera.centre_x_px + camera.focal_px * lateral / depth
    y = camera.horizon_px + camera.focal_px * (camera.y_m - points[:, 1]) / depth
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    low_x, high_x = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
    low_y, high_y = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    visible = np.maximum.reduceat(depth, starts) > NEAR_M * 1.01
    visible &= (high_x >= 0) & (low_x < camera.width) & (high_y >= 0) & (low_y < camera.height)
    visible &= (high_x - low_x) * (high_y - low_y) > 0.6
    layers = np.concatenate([chunk.layers[keep] for chunk, keep, _ in parts])
    depths = np.concatenate([chunk.depths[keep] for chunk, keep, _ in parts]) + moved
    order = np.lexsort((-depths, layers))
    order = order[visible[order]]
    first, second = starts[order], starts[order] + 1
    along = np.concatenate([chunk.along[keep] for chunk, keep, _ in parts])[order]
    slope, offset = _inverse_depth(x, depth, first, second, along)
    return Faces(
        outlines=np.stack([np.clip(x, -4e3, 1e4), np.clip(y, -4e3, 1e4)], 1).astype(np.float32),
        starts=first,
        sizes=sizes[order],
        labels=np.concatenate([chunk.labels[keep] for chunk, keep, _ in parts])[order],
        colours=np.concatenate([chunk.colours[keep] for chunk, keep, _ in parts])[order],
        surfaces=np.concatenate([chunk.surfaces[keep] for chunk, keep, _ in parts])[order],
        along=along,
        salts=salts[order],
        slope=slope,
        offset=offset,
        depth=depth[first].astype(np.float32),
        right=lateral[first] > 0,
    )


def _inverse_depth(
    x: np.ndarray, depth: np.ndarray, first: np.ndarray, second: np.ndarray, along: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return slope and offset of 1 / depth as a function of the pixel column: on a plane it is linear."""
    near, far = 1 / depth[first], 1 / depth[second]
    run = x[second] - x[first]
    run = np.where(np.abs(run) < 0.5, np.inf, run)
    slope = np.where(along, (far - near) / run, 0)
    return slope.astype(np.float32), (near - slope * x[first]).astype(np.float32)


def _draw(numbers: Image.Image, faces: Faces) -> None:
    """Draw face `i` with the number `i + 1`; 0 is left for sky and ground."""
    polygon = ImageDraw.Draw(numbers).draw.draw_polygon
    flat = faces.outlines.ravel().tolist()
    starts, sizes = (2 * faces.starts).tolist(), (2 * faces.sizes).tolist()
    for number, (start, size) in enumerate(zip(starts, sizes, strict=True), 1):
        polygon(flat[start : start + size], number, 1)
