"""Which other ways through a model exist, and what each costs and gives up.

    PathSpec            which way: data that prints, reads back and goes into JSON     spec.py, transforms
    build_path          a module that goes that way, over the same tensors             build.py, sharing.py
    PathFactory         the same for several ways of one model
    load_model          stock models by name                                           models
    read_bundle         a bundle that `runtime build` wrote                            bundle.py, records.py

A family (`family.py`; `segformer`, `vit`, `swin`, `upernet`, `convnext`, `detr`, `ofa`, and `generic` for all others)
knows the names inside its stock models. Transforms (`transforms`) are the kinds of change; those that know no family
change what an `anatomy` names (`cutting`, `importance`, `pruning`, `lowrank` carry them out). `search` turns the knobs
that a family offers (`knobs`, `structural`, `space`); `tasks`, `judge` and `quality` say what a path gives up, `cost`
what it costs, `frontier` which are worth keeping, and `make` writes it all down. `data` holds the frames to judge on.
"""

from gearshift.paths.build import Path, PathFactory, build_path
from gearshift.paths.bundle import Bundle, read_bundle
from gearshift.paths.models import LoadedModel, load_model
from gearshift.paths.spec import PathSpec

__all__ = [
    "Bundle",
    "LoadedModel",
    "Path",
    "PathFactory",
    "PathSpec",
    "build_path",
    "load_model",
    "read_bundle",
]
