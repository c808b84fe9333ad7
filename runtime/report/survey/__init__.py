"""The report of a survey: one self-contained page, and tables for the terminal.

survey_html        one page that needs no network                          page.py, figures.py
survey_terminal    the same figures as rich tables                         console.py
"""

from gearshift.runtime.report.survey.console import survey_terminal
from gearshift.runtime.report.survey.page import survey_html

__all__ = ["survey_html", "survey_terminal"]
