"""Typed YAML: files are read into pydantic models; what does not fit is named with the nearest known key."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gearshift.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[int | str, ...]

LONGEST_SHOWN = 80
"""Characters of a value that a message repeats."""

# A value that does not fit the tag it has, or seems to have (2026-13-45), fails in PyYAML's own constructors.
_NOT_YAML = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


def read_config(path: Path, model: type[Model]) -> Model:
    """Read a YAML file into `model`.

    Raises:
        ConfigError: The file is absent, is not YAML, or a key is unknown, missing or ill-typed; one line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}; give an existing YAML file") from error
    try:
        value = yaml.safe_load(text)
    except _NOT_YAML as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    return check_config(value, model, str(path))


def check_config(value: Any, model: type[Model], where: str) -> Model:
    """Validate an already parsed document; `where` names it in the message.

    Raises:
        ConfigError: A key is unknown, missing or ill-typed; one line.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_describe(error, model)}") from error


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
    errors = error.errors(include_url=False)
    unknown = [item for item in errors if item["type"] == "extra_forbidden"]
    if unknown:  # said first: a misspelt key is also a missing one
        return _describe_unknown(unknown[0]["loc"], model)
    first = errors[0]
    if first["type"] == "missing":
        return f'key "{_dotted(first["loc"])}" is missing'
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{_complaint(first)}{more}"


def _describe_unknown(location: Location, model: type[BaseModel]) -> str:
    """Name an unknown key and the nearest of its section; failing that, the nearest of any section."""
    *above, key = location
    section = sorted(_keys(_section(model, tuple(above))))
    nearest = difflib.get_close_matches(str(key), section, n=1) or difflib.get_close_matches(
        str(key), sorted(set(_all_keys(model))), n=1
    )
    hint = f'; did you mean "{nearest[0]}"?' if nearest else f"; known keys: {', '.join(section)}"
    return f'unknown key "{_dotted(location)}"{hint}'


def _complaint(item: ErrorDetails) -> str:
    reason = " ".join(item["msg"].removeprefix("Value error, ").split())
    reason = reason[:1].lower() + reason[1:]
    if item["loc"]:
        return f'"{_dotted(item["loc"])}" is {_shown(item["input"])}: {reason}'
    if item["type"] == "value_error":  # what our own models say of keys that do not go together
        return reason
    return f"the document is {_shown(item['input'])}, but should hold keys and their values"


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _dotted(location: Location) -> str:
    return ".".join(" ".join(str(part).split()) for part in location)


def _keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _section(model: type[BaseModel], above: Location) -> type[BaseModel]:
    """Return the model of the section that `above` leads to; places in lists and the like are passed over."""
    for part in above:
        for name, field in model.model_fields.items():
            inner = next(_models_in(field.annotation), None)
            if part == (field.alias or name) and inner is not None:
                model = inner
                break
    return model


def _all_keys(model: type[BaseModel], passed: frozenset[type[BaseModel]] = frozenset()) -> Iterator[str]:
    yield from _keys(model)
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            if inner not in passed:
                yield from _all_keys(inner, passed | {model})


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model named in an annotation, such as `Section | None` or `list[Section]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
