"""From an image of face numbers to colours and classes, all pixels at once.

Each face brings 1 / depth as a linear function of the pixel column, which gives every pixel its place on the
face in metres: textures, bricks and windows are therefore fixed to the world and in true perspective.
"""

import functools
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFilter

from gearshift.paths.data.classes import IGNORE_INDEX
from gearshift.paths.data.faces import PAVEMENT, ROAD, SKY, TREE, Colour, Surface
from gearshift.paths.data.plan import CHUNK_M, PARKING_HALF_ROAD_M, STOREY_M, Plan

TILE = 512  # side of a texture in texels
_GRAIN, _CLOUD, _BRICK, _LEAF = (kind * TILE * TILE for kind in range(4))
# By Surface, in its order: where its texture starts, texels a metre, strength.
_SURFACES = (
    np.array([_GRAIN, _LEAF, _BRICK, _BRICK, _GRAIN, _GRAIN, _LEAF], np.int32),
    np.array([24, 40, 40, 40, 24, 24, 72], np.float32),
    np.array([0.05, 0.4, 0.14, 0.14, 0.08, 0.05, 0.36], np.float32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """A pinhole camera that looks along the road."""

    width: int
    height: int
    focal_px: float
    centre_x_px: float
    horizon_px: float
    x_m: float
    y_m: float
    z_m: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faces:
    """The `f` visible faces of a frame, in drawing order, over `p` points."""

    outlines: np.ndarray  # (p, 2) float32, pixels
    starts: np.ndarray  # (f,) first point of each face
    sizes: np.ndarray  # (f,) number of points of each face
    labels: np.ndarray  # (f,) uint8
    colours: np.ndarray  # (f, 3) float32
    surfaces: np.ndarray  # (f,) Surface
    along: np.ndarray  # (f,) bool
    salts: np.ndarray  # (f,) float32
    slope: np.ndarray  # (f,) float32: 1 / depth = slope * column + offset
    offset: np.ndarray  # (f,) float32
    depth: np.ndarray  # (f,) float32, metres
    right: np.ndarray  # (f,) bool, right of the camera


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the ground needs to know of the `n` chunks ahead."""

    first_chunk: int
    park: np.ndarray  # (n, 2) bool
    junction: np.ndarray  # (n,) bool
    eaves: np.ndarray  # (n, 2) float32, metres


@functools.lru_cache(maxsize=1)
def _textures() -> np.ndarray:
    """Return the (kinds * TILE * TILE,) float32 textures, each of mean 0 and within about -1..1."""
    rng = np.random.default_rng(20_240_501)
    grain = 0.6 * _noise(rng, 1) + 0.5 * _noise(rng, 8) + 0.5 * _noise(rng, 64)
    cloud = _noise(rng, 128) + 0.6 * _noise(rng, 64) + 0.35 * _noise(rng, 24) + 0.2 * _noise(rng, 8)
    row, column = np.mgrid[0:TILE, 0:TILE]
    course = row // 4
    joint = (row % 4 == 0) | ((column + 4 * (course % 2)) % 8 == 0)
    brick = 0.6 * _noise(rng, 4) + 0.5 * _noise(rng, 64) + 0.3 * _noise(rng, 1) + 0.5 * joint
    leaf = 0.7 * _noise(rng, 3) + 0.6 * _noise(rng, 9) + 0.6 * _noise(rng, 30)
    stack = [np.clip(tile - tile.mean(), -2, 2) for tile in (grain, cloud, brick, leaf)]
    return np.stack(stack).astype(np.float32).ravel()


def _noise(rng: np.random.Generator, cell: int) -> np.ndarray:
    """Return (TILE, TILE) smooth noise of unit deviation that repeats without a seam."""
    count = max(TILE // cell, 2)
    coarse = np.pad(rng.standard_normal((count, count)).astype(np.float32), 2, mode="wrap")
    side = round(TILE * (count + 4) / count)
    wide = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))
    start = round(2 * TILE / count)
    tile = wide[start : start + TILE, start : start + TILE]
    return np.asarray((tile - tile.mean()) / tile.std())


@functools.lru_cache(maxsize=2)
def _sensor_noise(size: int) -> np.ndarray:
    """Return a strip of sensor noise, grey and colour mixed; frames start at different places in it."""
    rng = np.random.default_rng(20_240_502)
    noise = rng.normal(0, 2.6, (size // 3 + 1, 1)) + rng.normal(0, 1.4, (size // 3 + 1, 3))
    return np.rint(noise).astype(np.int16).ravel()


@functools.lru_cache(maxsize=4)
def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column of each pixel, flat."""
    row, column = np.mgrid[0:height, 0:width]
    return row.ravel().astype(np.int16), column.ravel().astype(np.float32)


def _texel(kind: np.ndarray | int, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    place = v.astype(np.int32)
    place &= TILE - 1
    place *= TILE
    place += u.astype(np.int32) & (TILE - 1)
    place += kind
    return _textures().take(place)


def _fraction(value: np.ndarray) -> np.ndarray:
    return np.asarray(value - np.floor(value))


def shade(
    numbers: np.ndarray, faces: Faces, ground: Ground, plan: Plan, camera: Camera, index: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the image (height, width, 3) and the labels (height, width), both uint8.

    Args:
        numbers: (height, width) int32, 1 + the face that each pixel shows, 0 for sky or ground.
        faces: The faces.
        ground: The chunks ahead.
        plan: The street.
        camera: Where it is seen from.
        index: Number of the frame, for the sensor noise.
    """
    height, width = numbers.shape
    flat = numbers.ravel()
    colours = np.empty((3, height * width), np.float32)
    labels = np.empty(height * width, np.uint8)
    open_pixels = np.flatnonzero(flat == 0)
    border = int(np.searchsorted(open_pixels, (int(camera.horizon_px) + 1) * width))
    _shade_sky(colours, labels, open_pixels[:border], plan, camera)
    _shade_ground(colours, labels, open_pixels[border:], ground, plan, camera)
    _shade_faces(colours, labels, np.flatnonzero(flat), flat, faces, plan, camera)
    if plan.bonnet:
        _cover_bonnet(colours, labels, plan, camera)
    return _expose(colours.reshape(3, height, width), index), labels.reshape(height, width)


def _place(pixels: np.ndarray, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    row, column = _grid(camera.height, camera.width)
    return row.take(pixels), column.take(pixels)


def _shade_sky(colours: np.ndarray, labels: np.ndarray, pixels: np.ndarray, plan: Plan, camera: Camera) -> None:
    labels[pixels] = SKY
    row, column = _place(pixels, camera)
    light = plan.light
    rise_of_row = ((camera.horizon_px - np.arange(camera.height)) / camera.height).astype(np.float32)
    spread_of_row = 1 / (np.maximum(rise_of_row, 0) + np.float32(0.12))
    spread = spread_of_row.take(row)
    scale = np.float32(0.35 * 360 / camera.height)
    u = (column - np.float32(camera.centre_x_px)) * scale * spread + (plan.seed % 977)
    cloud = _texel(_CLOUD, u, spread * 60 + (camera.z_m * 0.05) % TILE) * np.float32(0.45)
    cloud += np.float32(light.cloud - 0.4)
    np.clip(cloud, 0, 1, out=cloud)
    cloud *= np.float32(0.75)
    blend_of_row = np.clip(rise_of_row * 2.4, 0, 1)
    for channel in range(3):
        high, low = light.zenith[channel], light.horizon[channel]
        blue = (low + (high - low) * blend_of_row).astype(np.float32).take(row)
        colours[channel][pixels] = blue + (np.float32(low * 1.04) - blue) * cloud


def _shade_ground(
    colours: np.ndarray, labels: np.ndarray, pixels: np.ndarray, ground: Ground, plan: Plan, camera: Camera
) -> None:
    row, column = _place(pixels, camera)
    rows = np.arange(camera.height, dtype=np.float64)
    depths = camera.y_m * camera.focal_px / np.maximum(rows - camera.horizon_px, 0.4)
    chunks = ((depths + camera.z_m) // CHUNK_M).astype(np.int64) - ground.first_chunk
    chunks = np.clip(chunks, 0, len(ground.junction) - 1)
    scale = (depths / camera.focal_px).astype(np.float32)
    shift = camera.x_m - plan.bend(depths + camera.z_m, camera.z_m) - camera.centre_x_px * scale
    x = column * scale.take(row) + shift.astype(np.float32).take(row)
    z = ((depths + camera.z_m) % (TILE * 2)).astype(np.float32).take(row)
    reach = np.abs(x)
    kerb, wall = np.float32(plan.half_road_m), np.float32(plan.half_road_m + plan.pavement_m)
    crossing = ground.junction[chunks].take(row)
    on_road = (reach < kerb) | crossing
    plot = ground.park[chunks]  # (rows, 2)
    green = (((x < -wall) & plot[:, 0].take(row)) | ((x > wall) & plot[:, 1].take(row))) & ~crossing
    label = np.full(len(pixels), PAVEMENT, np.uint8)
    label[green] = TREE
    label[on_road] = ROAD
    labels[pixels] = label
    tone = _texel(_GRAIN, x * 20 + TILE, z * 20) * (1.2 / (9 + depths)).astype(np.float32).take(row)
    tone += _texel(_CLOUD, x * 30 + TILE, z * 6) * np.float32(0.06)
    tone += 1
    edge = np.flatnonzero(np.abs(reach - kerb) < 0.25)
    tone[edge] += np.where(reach[edge] > kerb - 0.02, np.float32(0.14), np.float32(-0.16))
    _lay_slabs(tone, np.flatnonzero(~on_road & ~green), x, z, depths.astype(np.float32).take(row))
    _cast_shadow(tone, x, chunks.take(row), ground, plan)
    marks = _marks(on_road & ~crossing, x, reach, z, plan)
    clear = np.exp(-depths / plan.light.haze_m)
    clear_of_pixel = clear.astype(np.float32).take(row)
    for channel in range(3):
        palette = np.zeros(TREE + 1, np.float32)
        palette[[ROAD, PAVEMENT, TREE]] = plan.asphalt[channel], plan.paving[channel], (88, 98, 58)[channel]
        colour = palette.take(label)
        for where, paint in marks:
            colour[where] = paint[channel]
        colour *= tone
        colour *= np.float32(plan.light.gain[channel])
        colour -= np.float32(plan.light.horizon[channel])
        colour *= clear_of_pixel
        colour += np.float32(plan.light.horizon[channel])
        colours[channel][pixels] = colour


def _lay_slabs(tone: np.ndarray, paved: np.ndarray, x: np.ndarray, z: np.ndarray, depth: np.ndarray) -> None:
    x, z, depth = x[paved], z[paved], depth[paved]
    joint = (_fraction(z / np.float32(0.9)) < 0.06) | (_fraction(x / np.float32(0.7)) < 0.05)
    tone[paved] -= joint * np.float32(0.18) * np.exp(depth * np.float32(-0.08))


def _marks(
    on_road: np.ndarray, x: np.ndarray, reach: np.ndarray, z: np.ndarray, plan: Plan
) -> list[tuple[np.ndarray, Colour]]:
    """Return pixels and colour of the paint on the road."""
    centre = np.flatnonzero((reach < 0.07) & on_road)
    marks: list[tuple[np.ndarray, Colour]] = [(centre[z[centre] % 8 < 4.5], (186, 186, 180))]
    inset = plan.half_road_m - reach
    border = np.flatnonzero((inset < 0.62) & (inset > 0.28) & on_road)
    if plan.seed % 3:
        between = inset[border]
        marks.append((border[(between < 0.38) | (between > 0.52)], (164, 146, 88)))
    elif plan.half_road_m > PARKING_HALF_ROAD_M:
        marks.append((np.flatnonzero((np.abs(inset - 2.0) < 0.05) & on_road), (172, 172, 168)))
    return marks


def _cast_shadow(tone: np.ndarray, x: np.ndarray, chunk: np.ndarray, ground: Ground, plan: Plan) -> None:
    """Darken the strip that the houses on the sunny side cover."""
    light = plan.light
    if light.contrast < 0.1:
        return
    reach = ground.eaves[:, 0 if light.sun_side < 0 else 1] * np.float32(0.55 + (plan.seed % 7) * 0.09)
    from_wall = np.float32(plan.half_road_m + plan.pavement_m) - x * light.sun_side
    tone[from_wall < reach.take(chunk)] *= np.float32(1 - 1.3 * light.contrast)


def _shade_faces(
    colours: np.ndarray,
    labels: np.ndarray,
    pixels: np.ndarray,
    flat: np.ndarray,
    faces: Faces,
    plan: Plan,
    camera: Camera,
) -> None:
    face = flat.take(pixels).astype(np.intp)
    face -= 1
    labels[pixels] = faces.labels.take(face)
    row, column = _place(pixels, camera)
    depth = faces.slope.take(face) * column
    depth += faces.offset.take(face)
    np.clip(depth, 1 / 400, 1 / 0.3, out=depth)
    np.reciprocal(depth, out=depth)
    metres = depth * np.float32(1 / camera.focal_px)
    up = (np.float32(camera.horizon_px) - row) * metres
    up += np.float32(camera.y_m)
    run = (column - np.float32(camera.centre_x_px)) * metres
    along = np.flatnonzero(faces.along.take(face))
    run[along] = depth[along] + np.float32(camera.z_m % 4096)
    run += 512
    kind, density, amplitude = (column_of[faces.surfaces] for column_of in _SURFACES)
    density = density.take(face)
    tone = _texel(kind.take(face), run * density + (faces.salts * 4096).take(face), up * density + 8192)
    tone *= (amplitude / (1 + faces.depth * np.float32(0.006))).take(face)
    tone += 1
    surface = faces.surfaces.take(face)
    base = faces.colours * _lit(faces, plan)[:, None]
    colour = [np.ascontiguousarray(base[:, channel]).take(face) for channel in range(3)]
    _glaze(colour, np.flatnonzero(surface == Surface.FACADE), run, up, metres, faces.salts, face, plan)
    _rail(colour, np.flatnonzero(surface == Surface.RAILING), run, up, depth)
    _see_through(colour, np.flatnonzero(surface == Surface.TWIGS), tone, plan)
    depth *= np.float32(-1 / plan.light.haze_m)
    clear = np.exp(depth, out=depth)
    tone *= clear
    haze = 1 - clear
    for channel in range(3):
        colour[channel] *= tone * np.float32(plan.light.gain[channel])
        colour[channel] += haze * np.float32(plan.light.horizon[channel])
        colours[channel][pixels] = colour[channel]


def _lit(faces: Faces, plan: Plan) -> np.ndarray:
    """Return how bright each face is: walls that look at the sun are, those under it are not."""
    contrast = plan.light.contrast
    faces_sun = faces.right != (plan.light.sun_side > 0)
    walls = np.where(faces_sun, 1 + 0.5 * contrast, 1 - contrast)
    return np.where(faces.along, walls, 1 - 0.25 * contrast).astype(np.float32)


def _glaze(
    colour: list[np.ndarray],
    wall: np.ndarray,
    run: np.ndarray,
    up: np.ndarray,
    metres: np.ndarray,
    salts: np.ndarray,
    face: np.ndarray,
    plan: Plan,
) -> None:
    """Put windows, doors and shop fronts on the facades; `metres` is the size of a pixel there."""
    run, up, metres, face = run.take(wall), up.take(wall), metres.take(wall), face.take(wall)
    pitch = (1 / (1.7 + 1.5 * salts)).astype(np.float32)
    column, storey = run * pitch.take(face), up * np.float32(1 / STOREY_M)
    whole_column, whole_storey = np.floor(column), np.floor(storey)
    column -= whole_column
    storey -= whole_storey
    cell = whole_column.astype(np.int32) * 73
    cell += whole_storey.astype(np.int32) * 151
    cell += (salts * 9973).astype(np.int32).take(face)
    cell &= 1023
    low = up < STOREY_M
    shop = low & (salts > 0.45).take(face)
    off = np.abs(column - np.float32(0.5))
    half = (0.2 + 0.17 * _fraction(salts * 7)).take(face)
    window = (off < half) & (storey > 0.27) & (storey < 0.8) & ~shop
    frame = window & (off < half - 0.03) & ((off < 0.03) | (np.abs(storey - np.float32(0.56)) < 0.02))
    fascia = shop & (storey > 0.8)
    glass = window & ~frame
    glass |= shop & (off < 0.43) & (storey > 0.17) & (storey < 0.76)
    door = low & ~shop & (off < 0.22) & (storey < 0.76) & (_dice() < 0.3).take(cell)
    panes, frames = np.flatnonzero(glass & ~door), np.flatnonzero(frame)
    pane_cell, shops, fascias = cell[panes], np.flatnonzero(shop & ~glass), np.flatnonzero(fascia)
    doors = np.flatnonzero(door)
    hue = (salts * 4096).astype(np.int32) & 63
    dice = _dice()
    glow = dice > 1 - plan.light.lit_windows
    fine = np.clip(1.25 - metres * 6, 0.25, 1)  # far windows blur into the wall
    for channel in range(3):
        tint = _hues()[channel].take(hue)
        shine = (28 + 62 * dice) * np.float32((0.9, 1.0, 1.1)[channel]) + glow * (170, 140, 80)[channel]
        plain = colour[channel].take(wall)
        fitted = plain.copy()
        fitted[shops] = (tint * np.float32(0.6)).take(face[shops])
        fitted[fascias] = tint.take(face[fascias])
        fitted[panes] = shine.astype(np.float32).take(pane_cell)
        fitted[frames] = (176, 172, 164)[channel]
        fitted[doors] = (tint * np.float32(0.8)).take(face[doors])
        fitted -= plain
        fitted *= fine
        fitted += plain
        colour[channel][wall] = fitted


@functools.lru_cache(maxsize=1)
def _dice() -> np.ndarray:
    return np.random.default_rng(20_240_503).random(1024).astype(np.float32)


@functools.lru_cache(maxsize=1)
def _hues() -> np.ndarray:
    """Return (3, 64) colours of doors and shop fronts."""
    rng = np.random.default_rng(20_240_504)
    grey = rng.uniform(24, 120, (1, 64))
    return (grey + rng.uniform(-24, 46, (3, 64))).clip(10, 200).astype(np.float32)


def _rail(colour: list[np.ndarray], fence: np.ndarray, run: np.ndarray, up: np.ndarray, depth: np.ndarray) -> None:
    """Show what is behind a railing between its bars, as a flat tone."""
    run, up, depth = run[fence], up[fence], depth[fence]
    gap = (_fraction(run / np.float32(0.24)) > 0.3) & (_fraction(up / np.float32(0.8)) > 0.1)
    clear = (gap * np.clip(1.1 - depth / 60, 0.35, 0.9)).astype(np.float32)
    for channel, behind in enumerate((104, 102, 90)):
        colour[channel][fence] += (behind - colour[channel][fence]) * clear


def _see_through(colour: list[np.ndarray], crown: np.ndarray, tone: np.ndarray, plan: Plan) -> None:
    """Let the sky through bare crowns."""
    clear = np.clip((tone[crown] - np.float32(1.0)) * 2.0, 0, 0.6)
    for channel in range(3):
        sky = np.float32(plan.light.horizon[channel] / plan.light.gain[channel])
        colour[channel][crown] += (sky - colour[channel][crown]) * clear
    tone[crown] = np.minimum(tone[crown], 1)


def _cover_bonnet(colours: np.ndarray, labels: np.ndarray, plan: Plan, camera: Camera) -> None:
    """Cover the lowest rows with the car's own bonnet, which no class names."""
    _, column = _grid(camera.height, camera.width)
    first = int(camera.height * 0.94) * camera.width
    below = camera.height - _grid(camera.height, camera.width)[0][first:]
    aside = column[first:] / camera.width - np.float32(0.5)
    pixels = first + np.flatnonzero(below <= np.rint(camera.height * (0.045 - 0.12 * aside**2)))
    labels[pixels] = IGNORE_INDEX
    shine = 1 - (camera.height - _grid(camera.height, camera.width)[0][pixels]) / (0.1 * camera.height)
    colours[:, pixels] = (30 + 45 * (plan.seed % 4)) * plan.light.gain[1] * (0.7 + 0.5 * shine)


def _expose(colours: np.ndarray, index: int) -> np.ndarray:
    """Blur by the lens, add the sensor's noise, and round. Takes planes, returns (height, width, 3)."""
    np.clip(colours, 0, 255, out=colours)
    planes = [Image.fromarray(plane) for plane in colours.astype(np.uint8)]
    soft = np.asarray(Image.merge("RGB", planes).filter(ImageFilter.BoxBlur(0.45)))
    start = (index * 7919 * 3) % 65_521
    noisy = soft.ravel() + _sensor_noise(soft.size + 65_521)[start : start + soft.size]
    np.clip(noisy, 0, 255, out=noisy)
    return np.asarray(noisy.astype(np.uint8).reshape(soft.shape))
