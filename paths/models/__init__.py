"""Stock models by name, from whichever library holds them.

load_model            one word, or KIND:NAME                                    names.py
LoadedModel           a module with what it was made from; saving it            loaded.py
describe              what `configs/models` describes (random weights)          described.py
load_checkpoint       a checkpoint of transformers                              from_transformers.py
load_timm             an architecture of timm, with weights of a file or hub    from_timm.py
"""

from gearshift.paths.models.described import TransformersDescription, build_described, describe, described_models
from gearshift.paths.models.from_timm import load_timm, make_timm
from gearshift.paths.models.from_transformers import load_checkpoint
from gearshift.paths.models.loaded import CHECKPOINT_FOLDER, LoadedModel, inside, save_checkpoint, weights_hash
from gearshift.paths.models.names import load_model

__all__ = [
    "CHECKPOINT_FOLDER",
    "LoadedModel",
    "TransformersDescription",
    "build_described",
    "describe",
    "described_models",
    "inside",
    "load_checkpoint",
    "load_model",
    "load_timm",
    "make_timm",
    "save_checkpoint",
    "weights_hash",
]
