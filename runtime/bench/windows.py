"""Power over sliding windows, from samples that are means over short stretches."""

from collections.abc import Sequence

import numpy as np

from gearshift.runtime.sampler import PowerSample

WINDOW_S = 1.0
"""Over which a power budget must hold."""


def sliding_power_w(samples: Sequence[PowerSample], window_s: float) -> list[tuple[float, float]]:
    """Mean power of every window of `window_s` that begins where a sample does and lies within the samples.

    Returns:
        Pairs of (start of the window, mean power in it). Power is taken as constant within a sample; a gap
        between samples is bridged at the level of the sample after it.
    """
    if not samples:
        return []
    edges = np.array([samples[0].start_s, *(sample.end_s for sample in samples)])
    spans = np.diff(edges)
    energy = np.concatenate([[0.0], np.cumsum(spans * np.array([sample.power_w for sample in samples]))])
    starts = edges[edges + window_s <= edges[-1] + 1e-9]
    used = np.interp(starts + window_s, edges, energy) - np.interp(starts, edges, energy)
    return [(float(start), float(joules / window_s)) for start, joules in zip(starts, used, strict=True)]
