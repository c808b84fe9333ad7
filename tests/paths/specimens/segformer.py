"""SegFormer among the specimens; its own tests go further."""

from tests.paths.conftest import small_segformer
from tests.paths.specimens.specimen import Specimen

SPECIMENS = (
    Specimen(
        name="segformer",
        make=small_segformer,
        sizes=((61, 99), (64, 64), (47, 131)),
        exact=("lossless", "lossless+qkv"),
        others=("skip=2.1", "blocks=1-1-2-0", "lossless+skip=0.1+fuse=600+decoder=64+size=75%", "decoder=96"),
    ),
)
