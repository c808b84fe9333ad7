"""How it was measured."""

from gearshift.runtime.report.document import RunDocument
from gearshift.runtime.report.tags import Html, tag
from gearshift.runtime.report.words import NOT_MEASURED, count, number, quantity, sentence, size


def method(document: RunDocument) -> Html:
    """Everything that a reader needs to do it again, as a list of terms."""
    return tag("dl", *(part for name, text in method_rows(document) for part in (tag("dt", name), tag("dd", text))))


def method_rows(document: RunDocument) -> list[tuple[str, str]]:
    """Terms with their texts."""
    rows = [
        ("Device", _device(document)),
        (
            "Versions",
            ", ".join(f"{name} {version}" for name, version in document.versions.items() if version),
        ),
        ("Model", _model(document)),
        ("Bundle", document.bundle),
        ("Frames", _frames(document)),
        ("Input shape", " × ".join(map(str, document.input_shape))),
        (
            "Run",
            f"{number(document.run.seconds)} s at {number(document.run.camera_fps)} frames/s from the camera",
        ),
        ("Costs of the paths", f"{document.costs}; {_repeats(document)}"),
        ("Energy from", f"{document.energy_source}{_uncertainty(document)}"),
        ("Meter", f"{document.meter.name}: {document.meter.boundary}"),
        ("Idle power", _idle(document)),
    ]
    rows.extend(("Note", note) for note in document.meter.notes)
    rows.extend(("Warning", sentence(warning)) for warning in document.run.energy.warnings)
    if document.run.quality.not_judged:
        rows.append(
            (
                "Quality",
                f"{count(document.run.quality.not_judged, 'frame')} not judged: the output was not kept",
            )
        )
    rows.extend((f"Profile, {role}", cost.source) for role, cost in document.where_cost_goes.items() if cost.source)
    return rows


def _device(document: RunDocument) -> str:
    device = document.device
    memory = device.get("memory_bytes")
    parts = [
        str(device.get("name") or "unknown"),
        str(device.get("kind") or ""),
        count(document.threads, "thread"),
        f"{size(int(memory))} of memory" if isinstance(memory, int | float) else "",
        f"driver {device['driver']}" if device.get("driver") else "",
    ]
    return ", ".join(part for part in parts if part)


def _model(document: RunDocument) -> str:
    model = document.model
    trained = "trained" if model.trained else "random weights"
    return f"{model.reference}, {trained}, SHA-256 {model.weights_sha256[:16]}"


def _frames(document: RunDocument) -> str:
    seed = "" if document.seed is None else f", seed {document.seed}"
    return f"{count(document.pictures, 'picture')}, {document.frames_from}{seed}"


def _repeats(document: RunDocument) -> str:
    calls = [path.latency.n for path in document.frontier if path.latency.n is not None]
    windows = [path.energy.windows for path in document.frontier if path.energy.windows is not None]
    parts = []
    if calls:
        parts.append(f"median latency of {_range(calls)} calls a path")
    if windows:
        parts.append(f"energy over {_range(windows)} windows a path")
    return ", ".join(parts) or "how often is not recorded"


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _uncertainty(document: RunDocument) -> str:
    energy = document.run.energy
    parts = []
    if energy.uncertainty_j is not None:
        parts.append(f"± {quantity(energy.uncertainty_j, 'J')} over the whole run")
    if energy.spread_j_per_frame is not None:
        parts.append(f"interquartile range over windows of 1 s {quantity(energy.spread_j_per_frame, 'J')} per frame")
    if energy.gross_j_per_frame is None:
        parts.append(f"{NOT_MEASURED} ({energy.reason or 'no reason given'})")
    return "".join(f"; {part}" for part in parts)


def _idle(document: RunDocument) -> str:
    how = f" ({document.meter.idle_how})" if document.meter.idle_how else ""
    return f"{quantity(document.meter.idle_power_w, 'W')}{how}"
