"""The energy report: joules per frame with all that must be known to believe them, and to compare them.

model        its shape, checked;  schema: the published file configs/schemas/energy-report.schema.json
spread       energy over windows, and how sure a mean or a ratio is;  per_frame: the figures made of both
footprint    CO2e, from a grid intensity that is named
older        the report of a document that was written before there was one
rows         in words;  section: as a part of the page
"""
