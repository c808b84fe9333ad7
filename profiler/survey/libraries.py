"""The libraries that can be surveyed, by name."""

import importlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gearshift.errors import InputError
from gearshift.profiler.survey.library import Library


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Where a library is opened; a name, so that it reaches other processes.

    Attributes:
        name: Of the distribution.
        opener: `module:callable` that returns a `Library`.
        extra: The extra of Gearshift that installs it.
    """

    name: str
    opener: str
    extra: str = ""

    @property
    def version(self) -> str:
        """The installed version.

        Raises:
            InputError: It is not installed.
        """
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            wanted = f"gearshift[{self.extra}]" if self.extra else self.name
            raise InputError(f"{self.name} is not installed; run pip install '{wanted}'") from None

    @property
    def module(self) -> str:
        """The module that opens it."""
        return self.opener.partition(":")[0]

    def open(self) -> Library:
        """Import the library."""
        module, _, name = self.opener.partition(":")
        library: Library = getattr(importlib.import_module(module), name)()
        return library


LIBRARIES: Mapping[str, Installed] = MappingProxyType(
    {
        "timm": Installed(name="timm", opener="gearshift.profiler.survey.timm_library:TimmLibrary", extra="timm"),
        "transformers": Installed(
            name="transformers",
            opener="gearshift.profiler.survey.transformers_library:TransformersLibrary",
        ),
    }
)
