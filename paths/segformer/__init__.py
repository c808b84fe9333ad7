"""The SegFormer family: transformers' `SegformerForSemanticSegmentation`, its lossless rewrites and its knobs."""
