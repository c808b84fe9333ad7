"""DETR and Deformable DETR of transformers: their exact forms, and what may be cut.

family.py      what a path may change, and the names inside the stock models
backbone.py    frozen batch norms in one pass, or folded into the convolutions; which blocks can be skipped
queries.py     what the queries start with, whatever the image: made once from the weights
forward.py     DETR's forward without what an image without padding does not need
deformable.py  the same for Deformable DETR
agreement.py   how far two models find the same objects
"""
