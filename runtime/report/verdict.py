"""Was a limit held, and by how much."""

from collections.abc import Iterable
from enum import IntEnum

from gearshift.runtime.report.document import Limit, RunDocument, Stretch
from gearshift.runtime.report.words import comparison, number, percent, quantity, sentence, trimmed


class Verdict(IntEnum):
    """How a budget went, better ones first: the worst of several limits is the largest."""

    NO_LIMIT = 0
    HELD = 1
    ON_AVERAGE = 2
    UNKNOWN = 3
    BROKEN = 4

    @property
    def words(self) -> str:
        """As text."""
        return _WORDS[self]


_WORDS = {
    Verdict.NO_LIMIT: "no limit",
    Verdict.HELD: "held",
    Verdict.ON_AVERAGE: "held on average",
    Verdict.UNKNOWN: "not measured",
    Verdict.BROKEN: "not held",
}


def of_limit(limit: Limit) -> Verdict:
    """Of one limit; a mission asks for its mean alone, power and energy also for every window of 1 s."""
    held = limit.held if limit.held is not None else limit.held_on_average
    if held is None:
        return Verdict.UNKNOWN
    if not held:
        return Verdict.BROKEN
    by_windows = limit.held is None and limit.kind != "mission"
    return Verdict.ON_AVERAGE if by_windows and limit.windows_in_violation != 0 else Verdict.HELD


def of_stretch(stretch: Stretch) -> Verdict:
    """Of all limits of a stretch."""
    return max(map(of_limit, stretch.limits), default=Verdict.NO_LIMIT)


def of_run(document: RunDocument) -> Verdict:
    """Of all stretches of a run."""
    return max(map(of_stretch, document.run.budgets), default=Verdict.NO_LIMIT)


def when(stretch: Stretch) -> str:
    """From when to when."""
    return f"{trimmed(stretch.from_s)} to {trimmed(stretch.to_s)} s"


def title(document: RunDocument) -> str:
    """The report in one line."""
    stretches = document.run.budgets
    if len(stretches) <= 1:
        return f"Budget {document.budget}: {of_run(document).words}"
    verdicts = [of_stretch(stretch) for stretch in stretches]
    parts = [f"{verdicts.count(kind)} {kind.words}" for kind in Verdict if kind in verdicts]
    return f"{len(stretches)} budgets in turn: {', '.join(parts)}"


def achieved(limit: Limit) -> float | None:
    """The figure that the limit is about."""
    return limit.mean if limit.achieved is None else limit.achieved


def worst(limit: Limit) -> float | None:
    """The worst frame, or the worst window of 1 s."""
    return limit.worst_frame if is_latency(limit) else limit.worst_1s_window


def in_violation(limit: Limit) -> float | None:
    """Share of frames, or of windows, above the limit."""
    return limit.frames_in_violation if is_latency(limit) else limit.windows_in_violation


def is_latency(limit: Limit) -> bool:
    """Whether the limit is on single frames' time."""
    return limit.kind.startswith("latency")


def told_briefly(stretch: Stretch) -> str:
    """A stretch and how it went, as one line."""
    figures = ", ".join(f"{limit.kind} {quantity(achieved(limit), limit.unit)}" for limit in stretch.limits)
    return f"{when(stretch)}, {stretch.budget}: {of_stretch(stretch).words}{f' ({figures})' if figures else ''}."


def told(limit: Limit) -> str:
    """A limit and how it went, as a sentence."""
    figure = achieved(limit)
    what = limit.kind if is_latency(limit) and limit.achieved is not None else f"mean {limit.kind}"
    bound = quantity(limit.limit, limit.unit, exact=True)
    if figure is None:
        return sentence(f"{what} under the limit of {bound}: not measured ({limit.reason or 'no reason given'})")
    distance = comparison(figure, limit.limit)
    return sentence(f"{what} {quantity(figure, limit.unit)}, {distance} the limit of {bound}{_violations(limit)}")


def _violations(limit: Limit) -> str:
    share = in_violation(limit)
    if share is None or limit.kind == "mission":
        return ""
    if is_latency(limit):
        return f"; {percent(share)} of frames took longer" if share else "; no frame took longer"
    of_windows = f"of the {limit.windows} windows of 1 s" if limit.windows else "of the windows of 1 s"
    return f"; {percent(share)} {of_windows} lay above it" if share else f"; none {of_windows} lay above it"


def margin(limit: Limit) -> str:
    """How far what was achieved lies from the limit, signed."""
    figure = achieved(limit)
    if figure is None:
        return "–"
    part = (figure / limit.limit - 1) * 100
    return f"{'+' if part > 0 else ''}{number(part, 2)} %"


def reasons(limits: Iterable[Limit]) -> list[str]:
    """Why something was not measured, each reason once."""
    return sorted({limit.reason for limit in limits if limit.reason})
