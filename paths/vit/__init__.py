"""The ViT family: plain vision transformers of timm and transformers (ViT, DeiT), and a linear segmenter over one.

layout.py       names inside the stock classes; which classes the family knows
faults.py       what stands in the way of the exact rewrite, on the actual modules
embedding.py    patches, prefix tokens, positions (resampled for other sizes)
affine.py       linear maps over derived tensors
attention.py    attention for all tokens, or for the few that the head reads
block.py        a block over the stock modules
matching.py     token merging
readout.py      from tokens to what the stock model answers
lean.py         the lossless forward pass
rewrites.py     q/k/v as one product, norms folded into the linear maps behind them
sizes.py        which frames a path takes; the stock form at other sizes
segmenter.py    `VitSegmenter`: features of several blocks under a linear head
family.py       `VitFamily`
"""
