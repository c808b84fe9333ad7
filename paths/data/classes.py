"""The eleven classes of CamVid, in the order that its label images use, and a colour to show each in."""

CAMVID_CLASSES: tuple[str, ...] = (
    "sky",
    "building",
    "pole",
    "road",
    "pavement",
    "tree",
    "sign",
    "fence",
    "car",
    "pedestrian",
    "bicyclist",
)

CAMVID_COLOURS: tuple[tuple[int, int, int], ...] = (
    (128, 128, 128),
    (128, 0, 0),
    (192, 192, 128),
    (128, 64, 128),
    (60, 40, 222),
    (128, 128, 0),
    (192, 128, 128),
    (64, 64, 128),
    (64, 0, 128),
    (64, 64, 0),
    (0, 128, 192),
)

IGNORE_INDEX = 255
"""Label of pixels that count neither in a loss nor in a score."""
