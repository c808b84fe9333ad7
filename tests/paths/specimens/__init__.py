"""Small random models of every family: one module per family, collected here."""

from tests.paths.specimens import detr, generic, lowrank, ofa, segformer, swin, upernet, vit
from tests.paths.specimens.specimen import Specimen

SPECIMENS: dict[str, Specimen] = {
    item.name: item
    for module in (segformer, ofa, vit, lowrank, swin, upernet, detr, generic)
    for item in module.SPECIMENS
}
