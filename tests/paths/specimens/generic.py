"""Models without a family: small ones of timm and torchvision that robots use."""

import timm
from torch import nn

from tests.paths.specimens.factored import of_low_rank
from tests.paths.specimens.masks import heads_cut, mlp_cut, pruned
from tests.paths.specimens.specimen import Specimen, seeded


def make(name: str) -> nn.Module:
    return seeded(lambda: timm.create_model(name, pretrained=False, num_classes=7))


def resnet10t_macs(height: int, width: int) -> int:
    """The stem's three convolutions, one block of two convolutions for each stage, and the classifier."""

    def half(length: int) -> int:
        return (length + 1) // 2

    h, w = half(height), half(width)
    total = h * w * 9 * (3 * 24 + 24 * 32 + 32 * 64)
    h, w = half(h), half(w)
    channels = 64
    for stage, out in enumerate((64, 128, 256, 512)):
        if stage:
            h, w = half(h), half(w)
            total += h * w * channels * out  # the shortcut, behind its pooling
        total += h * w * 9 * (channels * out + out * out)
        channels = out
    return total + 512 * 7


RESNET_SIZES = ((64, 64), (61, 99))
RESNET_FRAMES = Specimen(
    name="frames", make=lambda: make("resnet10t"), sizes=RESNET_SIZES, calibration_frames=4
).calibration()

SPECIMENS = (
    Specimen(
        name="resnet10t",
        make=lambda: make("resnet10t"),
        sizes=RESNET_SIZES,
        exact=("lossless",),
        masked={
            "prune=40%": pruned(40),
            "lossless+prune=20%": pruned(20),
            "lowrank=3:16,6:20": of_low_rank({3: 16, 6: 20}, RESNET_FRAMES),
        },
        macs={"stock": resnet10t_macs, "lossless": resnet10t_macs},
        others=("skip=0.0", "prune=60%+skip=0.0", "blocks=0", "size=48x64", "lossless+lowrank=3:16"),
        calibration_frames=4,
    ),
    Specimen(
        name="mobilenetv3",
        make=lambda: make("mobilenetv3_small_050"),
        sizes=((64, 64), (61, 99)),
        exact=("lossless",),
        masked={"prune=50%": pruned(50)},
        others=("lossless+skip=0.0", "size=75%"),
    ),
    Specimen(
        name="mobilevit",
        make=lambda: make("mobilevit_xxs"),
        sizes=((64, 64), (96, 64)),
        exact=("lossless",),
        masked={"heads=60%": heads_cut(60), "mlp=50%": mlp_cut(50)},
        others=("lossless+skip=2.0+heads=70%+mlp=70%",),
    ),
    Specimen(
        name="convnext-timm",
        make=lambda: make("convnext_atto"),
        sizes=((64, 64), (61, 99)),
        masked={"prune=50%": pruned(50)},
        others=("skip=2.3", "blocks=1-2-6-2"),
    ),
)
