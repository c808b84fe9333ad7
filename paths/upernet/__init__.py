"""UPerNet: a feature pyramid with pooling on top, on whichever backbone."""
