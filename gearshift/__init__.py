"""Gearshift: hold a power, energy or latency budget by shifting between paths through the same weights.

The four parts are `gearshift.profiler` (what does a model cost, and where), `gearshift.paths` (which other
ways through it exist), `gearshift.runtime` (which way now) and `gearshift.retrain` (how the other ways give
up less). In a checkout they are the folders of the same names at the top of the repository.
"""

import logging
from pathlib import Path

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user asks for more

# A checkout without symbolic links (some Windows and archive tools) has the four folders only at its top.
_here = Path(__file__).resolve().parent
if not (_here / "runtime").is_dir():
    __path__.append(str(_here.parent))

__all__ = ["__version__"]
