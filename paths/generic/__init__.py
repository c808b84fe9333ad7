"""Models that no family knows by name: what can be found out about them by running them once.

GenericFamily    paths of any image model of timm, transformers or torchvision      family.py
discover         its blocks, attentions, feed-forward parts and foldable norms        discover.py
fold             batch norms folded into the convolutions before them                 fold.py
"""

from gearshift.paths.generic.family import GenericFamily

__all__ = ["GenericFamily"]
