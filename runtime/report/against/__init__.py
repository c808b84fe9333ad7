"""Two reports side by side.

ratios       the ratio of two figures, with an interval where both have a spread
comparable   why two reports may not be compared, and how else they differ
together     the energy of both, each device and interval once
data         all of it as one value;  page: the same as a page
"""
