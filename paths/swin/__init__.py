"""Swin transformers: for classification, and as the backbone of segmentation models."""
