"""The published JSON schema of the energy report, made from its model.

python -m gearshift.runtime.report.energy.schema > configs/schemas/energy-report.schema.json
"""

import json
import sys

from gearshift.runtime.report.energy.model import EnergyReport

NAME = "energy-report.schema.json"
"""In `configs/schemas`."""


def schema_text() -> str:
    """The file's text."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **EnergyReport.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
