"""The report of a bench: one self-contained page, tables for the terminal, a strict reader of its JSON.

    read_run    a report's JSON file, checked                              read.py, document.py
    html        one page that needs no network                             page.py, style.css, page.js
    terminal    the same content as rich tables                            console.py

    verdict     was a limit held, and by how much                          sections of the page:
    compare     the run beside the fixed paths                               headline, tables, method
    names       short names for paths                                        figures, timeline
    words       numbers as text                                            tags: escaped HTML

Nothing here measures or decides anything, and rendering a document twice gives the same bytes.
"""

from gearshift.runtime.report.console import terminal
from gearshift.runtime.report.page import html
from gearshift.runtime.report.read import read_run

__all__ = ["html", "read_run", "terminal"]
