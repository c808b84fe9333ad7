"""The SegFormer family: transformers' `SegformerForSemanticSegmentation`, its exact rewrites, its knobs."""
