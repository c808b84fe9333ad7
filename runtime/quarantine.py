"""Paths that raised are put aside for a while; their calls go to the nearest path that works."""

from collections.abc import Sequence

QUARANTINE_FRAMES = 300
"""Frames for which a path that raised is not chosen again."""


class Quarantine:
    """Knows which paths are put aside. Not locked: its owner is.

    Args:
        order: The paths to choose from, by rising cost.
        others: Further paths, only taken where none of these works.
    """

    def __init__(self, order: Sequence[str], others: Sequence[str]) -> None:
        self._order = list(order)
        self._others = [name for name in others if name not in self._order]
        self._until: dict[str, int] = {}

    def route(self, chosen: str, frame: int) -> str:
        """The path to run at frame number `frame`: the chosen one, or the nearest that is not put aside."""
        if not self._until:
            return chosen
        self._until = {name: until for name, until in self._until.items() if until > frame}
        ways = (name for name in (chosen, *self._alternatives(chosen)) if name not in self._until)
        return next(ways, chosen)

    def put_aside(self, failed: Sequence[str], frame: int) -> str | None:
        """Put the last of `failed` aside; the path to try next on the same frame, None where all have failed.

        A path that is put aside is tried before giving up.
        """
        self._until[failed[-1]] = frame + QUARANTINE_FRAMES
        left = [name for name in self._alternatives(failed[0]) if name not in failed]
        sound = [name for name in left if name not in self._until]
        return next(iter([*sound, *left]), None)

    def _alternatives(self, name: str) -> list[str]:
        """The next cheaper path first, for it holds the budget too; then the dearer ones, then the others."""
        position = self._order.index(name) if name in self._order else len(self._order)
        near = [*self._order[:position][::-1], *self._order[position + 1 :]]
        return near + [other for other in self._others if other != name]
