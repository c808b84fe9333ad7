"""Typed YAML: files are read into pydantic models, and what does not fit is named with the nearest known key."""

import difflib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gearshift.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)


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
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    return check_config(value, model, str(path))


def check_config(value: Any, model: type[Model], where: str) -> Model:
    """Validate an already parsed document; `where` names it in the message."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_describe(error, model)}") from error


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), sorted(_known_keys(model)), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; known keys: {', '.join(sorted(_known_keys(model)))}"
        return f'unknown key "{place}"{hint}'
    if first["type"] == "missing":
        return f'key "{place}" is missing'
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f'"{place}" is {first["input"]!r}: {first["msg"][0].lower()}{first["msg"][1:]}{more}'


def _known_keys(model: type[BaseModel]) -> set[str]:
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        keys.add(field.alias or name)
        nested = [field.annotation, *getattr(field.annotation, "__args__", ())]
        for part in nested:
            if isinstance(part, type) and issubclass(part, BaseModel):
                keys |= _known_keys(part)
    return keys
