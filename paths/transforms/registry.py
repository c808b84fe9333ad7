"""Every kind of transform by name, in canonical order."""

from gearshift.errors import SpecError
from gearshift.paths.transforms.base import Structural, Transform
from gearshift.paths.transforms.decoder import DecoderChannels, FuseChannels
from gearshift.paths.transforms.depth import Blocks, Skip
from gearshift.paths.transforms.exact import FoldedNorms, Lossless, MergedProjections
from gearshift.paths.transforms.heads import Heads
from gearshift.paths.transforms.lowrank import LowRank
from gearshift.paths.transforms.merge import MergedTokens
from gearshift.paths.transforms.mlp import Mlp
from gearshift.paths.transforms.prune import Prune
from gearshift.paths.transforms.size import InputSize
from gearshift.paths.transforms.subnet import ElasticSubnet

_KINDS: tuple[type[Transform], ...] = (
    Lossless,
    MergedProjections,
    FoldedNorms,
    Blocks,
    Skip,
    ElasticSubnet,
    Heads,
    Mlp,
    Prune,
    LowRank,
    MergedTokens,
    FuseChannels,
    DecoderChannels,
    InputSize,
)
_BY_NAME = {kind.name: kind for kind in _KINDS}
ORDER: tuple[str, ...] = tuple(_BY_NAME)
"""Names of all kinds, in the order in which a family applies them and an id prints them."""

STRUCTURAL: tuple[type[Structural], ...] = tuple(kind for kind in _KINDS if issubclass(kind, Structural))


def read_transform(name: str, value: str | None) -> Transform:
    """Read one transform by the name of its kind."""
    if name not in _BY_NAME:
        raise SpecError(f'unknown transform "{name}"; known: {", ".join(ORDER)}')
    return _BY_NAME[name].read(value)
