"""Structured pruning of any model: what belongs together is found once, what is kept is recorded as indices.

groups.py     which channels must go together, by torch-pruning's dependency graph; heads by the anatomy
choice.py     how many of a group go, and which: the record, checked before it is used
places.py     a module's inputs or outputs: cut on a clone, or silenced in a reference
checked.py    a pruned model against the stock model with the same channels silenced
targets.py    from "60 % of the operations" (or the latency, or the energy) to a percentage
"""
