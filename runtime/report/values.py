"""Numbers as documents hold them: finite, or null."""

import math
from typing import Annotated, Any

from pydantic import BeforeValidator


def _finite(value: Any) -> Any:
    """Not-a-number and infinities are no measurements."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
