"""Follow a hardware energy counter through wrap-arounds, resets and nonsense, in exact integers."""

# Margin on the time between two reads when judging a jump: a counter that updates every 0.1 s may deliver the
# energy of one whole period between two reads a microsecond apart.
SLACK_S = 1.0


class CounterTrack:
    """The total counted since the first reading.

    A reading below the last one is one wrap-around where the counter has a range, and a reset where it has
    none. At most one wrap may fit between two reads; a longer pause, a reset or a jump beyond `ceiling_w`
    begins a new epoch, and the units in between are not counted.

    Args:
        units_per_joule: 1000 for mJ, 1000000 for µJ.
        slack_s: Margin on the time between two reads; raise it for a counter that updates rarely.
        ceiling_w: No mean power above this is believed.
        span: Units from the counter's lowest to its highest reading (`max_energy_range_uj`): what a reading
            below the last one lacks. None if the counter never starts over.
    """

    def __init__(
        self, *, units_per_joule: float, ceiling_w: float, span: int | None = None, slack_s: float = SLACK_S
    ) -> None:
        self.total = 0
        self.epoch = 0
        self.fresh = 0
        self.break_reason: str | None = None
        self._units_per_joule, self._ceiling_w = units_per_joule, ceiling_w
        self._span, self._slack_s = span, slack_s
        self._last: int | None = None
        self._last_s = 0.0

    @property
    def safe_s(self) -> float | None:
        """Seconds within which the counter cannot have wrapped twice; None if it never wraps."""
        return None if self._span is None else self._span / self._units_per_joule / self._ceiling_w

    @property
    def total_j(self) -> float:
        """Joules counted."""
        return self.total / self._units_per_joule

    def update(self, raw: int, time_s: float) -> None:
        """Take in one raw reading."""
        last, since_s = self._last, time_s - self._last_s
        self._last, self._last_s = raw, time_s
        if last is None or (raw == last and not self._overslept(since_s)):
            return
        self.fresh += 1
        broken = self._why_broken(last, raw, since_s)
        if broken is None:
            self.total += self._step(last, raw)
        else:
            self.epoch += 1
            self.break_reason = broken

    def _step(self, last: int, raw: int) -> int:
        return raw - last if raw >= last else raw - last + (self._span or 0)

    def _overslept(self, since_s: float) -> bool:
        return self.safe_s is not None and since_s > self.safe_s

    def _why_broken(self, last: int, raw: int, since_s: float) -> str | None:
        if self._overslept(since_s):
            return f"not_watched: unread for {since_s:.3g} s, the counter may have wrapped more than once"
        if raw < last and self._span is None:
            return f"counter_reset: the counter went back from {last} to {raw} (driver reloaded?)"
        step_j = self._step(last, raw) / self._units_per_joule
        if step_j < 0:
            return f"counter_reset: the counter went back from {last} to {raw}, beyond its range {self._span}"
        if step_j > self._ceiling_w * (since_s + self._slack_s):
            return f"implausible: {step_j:.4g} J within {since_s:.3g} s is above {self._ceiling_w:.4g} W"
        return None
