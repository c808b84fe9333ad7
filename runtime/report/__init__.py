"""The report of a bench: one self-contained page, tables for the terminal, a strict reader of its JSON.

    read_run         a report's JSON file, checked                         read.py, document.py
    html             one page that needs no network                        page.py, style.css, page.js
    terminal         the same content as rich tables                       console.py
    energy_report    the energy report of a bench's document               energy/
    with_emissions   the document with CO2e, from a grid intensity         given.py
    comparison       two documents side by side;  compare_html: as a page  against/

    verdict     was a limit held, and by how much                          sections of the page:
    compare     the run beside the fixed paths                               headline, tables, method
    names       short names for paths                                        figures, timeline, energy/section
    words       numbers as text                                            tags: escaped HTML

Nothing here measures or decides anything, and rendering a document twice gives the same bytes.
"""

from gearshift.runtime.report.against.data import comparison
from gearshift.runtime.report.against.page import compare_html
from gearshift.runtime.report.console import terminal
from gearshift.runtime.report.given import energy_report, with_emissions
from gearshift.runtime.report.page import html
from gearshift.runtime.report.read import read_run

__all__ = ["compare_html", "comparison", "energy_report", "html", "read_run", "terminal", "with_emissions"]
