"""The kinds of change that a path may make: one file each, a checked value that prints and reads back.

    exact.py      Lossless, MergedProjections, FoldedNorms     what costs nothing: carried out by the family
    depth.py      Blocks, Skip                                 residual blocks left out
    subnet.py     ElasticSubnet                                a smaller network of an elastic supernet
    heads.py      Heads                                        attention heads left out
    mlp.py        Mlp                                          hidden channels of feed-forward parts left out
    prune.py      Prune                                        channels and heads left out, of any model
    lowrank.py    LowRank                                      layers replaced by two thinner ones
    merge.py      MergedTokens                                 alike tokens of a vision transformer merged
    decoder.py    FuseChannels, DecoderChannels                channels of a segmentation decoder
    size.py       InputSize                                    smaller frames

`registry.py` knows them all by name. Those that derive from `base.Structural` know no family: they change any model
that has an `Anatomy`.
"""

from gearshift.paths.transforms.base import Flag, Share, Structural, Transform
from gearshift.paths.transforms.decoder import DecoderChannels, FuseChannels
from gearshift.paths.transforms.depth import Blocks, Skip
from gearshift.paths.transforms.exact import FoldedNorms, Lossless, MergedProjections
from gearshift.paths.transforms.heads import Heads
from gearshift.paths.transforms.lowrank import LowRank
from gearshift.paths.transforms.merge import MergedTokens
from gearshift.paths.transforms.mlp import Mlp
from gearshift.paths.transforms.prune import Prune
from gearshift.paths.transforms.registry import ORDER, STRUCTURAL, read_transform
from gearshift.paths.transforms.size import InputSize
from gearshift.paths.transforms.subnet import ElasticSubnet

__all__ = [
    "ORDER",
    "STRUCTURAL",
    "Blocks",
    "DecoderChannels",
    "ElasticSubnet",
    "Flag",
    "FoldedNorms",
    "FuseChannels",
    "Heads",
    "InputSize",
    "Lossless",
    "LowRank",
    "MergedProjections",
    "MergedTokens",
    "Mlp",
    "Prune",
    "Share",
    "Skip",
    "Structural",
    "Transform",
    "read_transform",
]
