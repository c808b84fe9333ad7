"""Every error that Gearshift raises on purpose, as one tree.

    GearshiftError
    ├── InputError            the caller's input is wrong: one line, exit code 2
    │   ├── BudgetError       a budget that cannot be read, or that nothing here can measure
    │   ├── BundleError       a bundle that is damaged, foreign or of a newer schema
    │   ├── CheckpointError   weights that cannot be read or do not fit the model
    │   ├── ConfigError       an unknown or ill-typed key in a YAML or JSON file
    │   ├── DataError         images or labels that are missing, mismatched or out of range
    │   ├── ModelError        a model name that is unknown or a module that no family knows
    │   ├── OutputError       a place that cannot be written
    │   └── SpecError         a path specification that cannot be read
    ├── PathRefusedError      a transform whose preconditions do not hold on this module
    ├── MeterUnavailableError a meter that cannot read here; the message says why
    └── WindowError           a measuring window opened twice or closed unopened

A message says what was wrong, the value got, what is allowed, and what to do next.
"""


class GearshiftError(Exception):
    """Root of the tree: catch this to catch everything that Gearshift raises on purpose."""


class InputError(GearshiftError):
    """The caller's input is wrong; the command line prints the message and exits with 2."""


class BudgetError(InputError):
    """A budget that cannot be read, or that no meter here can observe."""


class BundleError(InputError):
    """A bundle that is damaged, foreign or of a newer schema."""


class CheckpointError(InputError):
    """Weights that cannot be read, or that do not fit the model."""


class ConfigError(InputError):
    """An unknown or ill-typed key in a configuration file."""


class DataError(InputError):
    """Images or labels that are missing, mismatched or out of range."""


class ModelError(InputError):
    """A model name that is unknown, or a module that no family knows."""


class OutputError(InputError):
    """A file or folder that cannot be written."""


class SpecError(InputError):
    """A path specification that cannot be read."""


class PathRefusedError(GearshiftError):
    """A transform's preconditions do not hold on this module; the message names the one that fails."""


class MeterUnavailableError(GearshiftError):
    """A meter cannot read on this machine; the message says why and what would help."""


class WindowError(GearshiftError):
    """A measuring window was opened twice under one name, or closed without being open."""
