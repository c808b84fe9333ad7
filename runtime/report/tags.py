"""HTML by construction: text is escaped unless it was made here."""

from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | None
VOID = frozenset({"meta", "br", "wbr"})


def tag(element: str, *children: Child, **attributes: str | None) -> Html:
    """An element; children that are plain text are escaped, None is left out.

    Attribute names lose a trailing underscore (`class_`) and get hyphens for the others (`data_label`).
    """
    shown = "".join(
        f' {name.removesuffix("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if element in VOID:
        return Html(f"<{element}{shown}>")
    return Html(f"<{element}{shown}>{join(*children)}</{element}>")


def join(*children: Child) -> Html:
    """Several pieces, one after the other."""
    return Html("".join(_safe(child) for child in children if child is not None))


def _safe(child: str) -> str:
    return child if isinstance(child, Html) else escape(child)
