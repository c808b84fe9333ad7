"""Operator statistics over every architecture of a model library, without weights and without computing.

    survey             rows of all architectures, in parallel, resumable       survey.py
    Survey             the rows, with what they were made from                 survey.py
    Row, Layer         what is known of one architecture                       row.py, layers.py
    summarise          counts, shares and years over many rows                 summary.py
    compare            published figures beside ours, differences explained    published.py
    LIBRARIES          timm and transformers                                   libraries.py

    measure            one architecture: build it, look at its layers, count one pass
    without_values     building on the meta device without initialising what holds no values
    remembered         shapes of results that were seen before need no second look
    workers            processes that may die or hang, and cost one architecture each
    assumed            questions about values, where there are none
    journal            rows on disk as they finish
    years              from the papers that the library's own documentation cites
    table              rows as CSV

MACs come from `gearshift.profiler.CallRecorder` and its table of formulas: they are those of `count`.
"""

from gearshift.profiler.survey.layers import Layer
from gearshift.profiler.survey.libraries import LIBRARIES
from gearshift.profiler.survey.published import compare
from gearshift.profiler.survey.row import Row
from gearshift.profiler.survey.summary import Summary, summarise
from gearshift.profiler.survey.survey import Survey, survey
from gearshift.profiler.survey.table import architectures_csv, layers_csv

__all__ = [
    "LIBRARIES",
    "Layer",
    "Row",
    "Summary",
    "Survey",
    "architectures_csv",
    "compare",
    "layers_csv",
    "summarise",
    "survey",
]
