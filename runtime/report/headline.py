"""The top of the page: the verdict, what must be known to believe it, and the figures that matter most."""

from gearshift.runtime.report.compare import gross_j, metric, net_j, saved, saved_text
from gearshift.runtime.report.document import Run, RunDocument
from gearshift.runtime.report.tags import Html, join, tag
from gearshift.runtime.report.verdict import Verdict, of_run, title, told, told_briefly
from gearshift.runtime.report.words import NOT_MEASURED, count, number, quantity, scale, sentence

CLASS = {
    Verdict.NO_LIMIT: "neutral",
    Verdict.HELD: "good",
    Verdict.ON_AVERAGE: "fair",
    Verdict.UNKNOWN: "neutral",
    Verdict.BROKEN: "bad",
}
_SIGN = {
    Verdict.NO_LIMIT: "–",
    Verdict.HELD: "✓",
    Verdict.ON_AVERAGE: "≈",
    Verdict.UNKNOWN: "?",
    Verdict.BROKEN: "✗",
}
SHORTFALLS_SHOWN = 2


def badge(verdict: Verdict) -> Html:
    """A verdict, as words, sign and colour."""
    return tag("span", f"{_SIGN[verdict]} {verdict.words}", class_=f"badge {CLASS[verdict]}")


def headline(document: RunDocument) -> Html:
    """The verdict and what stands behind it."""
    verdict = of_run(document)
    return tag(
        "header",
        tag(
            "p",
            f"Gearshift · {document.device.get('name') or 'unknown device'} · {document.created}",
            class_="eyebrow",
        ),
        tag("h1", title(document)),
        tag("ul", *(tag("li", text) for text in verdict_lines(document)), class_="told"),
        *callouts(document),
        class_=f"headline {CLASS[verdict]}",
    )


def verdict_lines(document: RunDocument) -> list[str]:
    """How every limit went; with several stretches, how every stretch went."""
    stretches = document.run.budgets
    if len(stretches) > 1:
        return [told_briefly(stretch) for stretch in stretches]
    limits = [limit for stretch in stretches for limit in stretch.limits]
    return [told(limit) for limit in limits] or ["No limit was set."]


def callouts(document: RunDocument) -> list[Html]:
    """What a reader must know first."""
    binding = "Binding" if document.binds.binds else "Not binding"
    lines = [_callout("plain", binding, sentence(document.binds.text))]
    source = energy_note(document)
    certain = document.run.energy.gross_j_per_frame is not None and not document.estimated
    lines.append(_callout("plain" if certain else "warn", *source))
    if not document.model.trained:
        text = "The weights are random: cost figures stand, quality figures say nothing."
        lines.append(_callout("warn", "Untrained", text))
    if shortfall := shortfall_note(document):
        lines.append(_callout("warn", "Controller", shortfall))
    return lines


def energy_note(document: RunDocument) -> tuple[str, str]:
    """Where energy comes from: a title and a sentence."""
    energy = document.run.energy
    if energy.gross_j_per_frame is None:
        return "Energy not measured", sentence(energy.reason or "no reason given")
    if document.estimated:
        return (
            "Energy ESTIMATED",
            f"No meter was read; the figures come from {_after_colon(document.energy_source)}. "
            f"{sentence(document.meter.boundary)}",
        )
    return (
        "Energy measured",
        f"By {_after_colon(document.energy_source)}. {sentence(document.meter.boundary)}",
    )


def _after_colon(source: str) -> str:
    """`cpu-time` of `estimated:cpu-time`."""
    return source.partition(":")[2] or source


def shortfall_note(document: RunDocument) -> str:
    """What the controller said when no path could hold the budget."""
    said = list(dict.fromkeys([*document.run.shortfalls, *([document.shortfall] if document.shortfall else [])]))
    if not said:
        return ""
    more = len(said) - SHORTFALLS_SHOWN
    rest = f" (and {count(more, 'more message')})" if more > 0 else ""
    return sentence("; ".join(said[:SHORTFALLS_SHOWN])) + rest


def _callout(kind: str, name: str, text: str) -> Html:
    return tag("p", tag("strong", f"{name}: "), text, class_=f"callout {kind}")


def tiles(document: RunDocument) -> Html:
    """The figures that matter most, each beside its reference."""
    run = document.run
    cards = [
        *(_energy_tile(document, name) for name in ("stock", "lossless") if name in document.baselines),
        _quality_tile(document),
        _latency_tile(document),
        _tile(
            "Frames",
            str(run.frames),
            f"{run.dropped} dropped; {_rate(run)} of {number(run.camera_fps)} frames/s",
        ),
    ]
    if not document.baselines:
        note = f"{run.energy.reason + '; ' if run.energy.reason else ''}no comparison runs were made"
        cards.insert(0, _tile("Energy per frame, gross", quantity(gross_j(run), "J"), note, document.estimated))
    return tag("section", *cards, class_="tiles", aria_label="Key figures")


def _energy_tile(document: RunDocument, reference: str) -> Html:
    run, base = document.run, document.baselines[reference]
    share, net = saved(gross_j(run), gross_j(base)), saved(net_j(run), net_j(base))
    if share is None:
        note = run.energy.reason or base.energy.reason or "no reason given"
    else:
        factor, unit = scale("J", [gross_j(run), gross_j(base)])
        ours, theirs = (number((gross_j(one) or 0.0) * factor) for one in (run, base))
        note = f"{ours} against {theirs} {unit} gross; net {saved_text(net)}"
    return _tile(f"Energy per frame vs {reference}", saved_text(share), note, document.estimated)


def _quality_tile(document: RunDocument) -> Html:
    quality, stock = document.run.quality, document.baselines.get("stock")
    if quality.value is None:
        return _tile("Quality", NOT_MEASURED, quality.reason or "no reason given")
    note = f"over {count(quality.frames, 'frame')} as answered"
    if stock is not None and stock.quality.value is not None and stock.quality.metric == quality.metric:
        note = f"stock {number(stock.quality.value)}; {note}"
    return _tile(f"Quality, {metric(document)}", number(quality.value), note)


def _latency_tile(document: RunDocument) -> Html:
    latency, stock = document.run.latency_ms, document.baselines.get("stock")
    note = latency.reason or f"median {quantity(latency.p50, 'ms')}"
    if stock is not None and stock.latency_ms.p95 is not None:
        note = f"{note}; stock p95 {quantity(stock.latency_ms.p95, 'ms')}"
    return _tile("Latency p95", quantity(latency.p95, "ms"), note)


def _tile(name: str, value: str, note: str, estimated: bool = False) -> Html:
    mark = tag("span", "estimated", class_="mark") if estimated and value != NOT_MEASURED else None
    figure = tag("span", value, class_="value missing" if value == NOT_MEASURED else "value")
    return tag(
        "div",
        tag("span", name, class_="name"),
        join(figure, mark),
        tag("span", note, class_="note"),
        class_="tile",
    )


def _rate(run: Run) -> str:
    return NOT_MEASURED if run.fps is None else number(run.fps)
