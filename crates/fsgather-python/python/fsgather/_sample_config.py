"""The configuration of an evaluation as settings: :func:`settings_of`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional

from fsgather import _arguments
from fsgather._errors import ConfigError


def settings_of(config: Optional[Mapping[str, Any]]) -> Optional[dict[str, str]]:
    """Each setting of nested ones by its path, as JSON. Different configurations have different settings or paths."""
    if config is None:
        return None
    settings: dict[str, str] = {}

    def put(place: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for name, part in value.items():
                step = _step(place, name)
                put(f"{place}.{step}" if place else step, part)
            return
        try:
            settings[place] = json.dumps(value, sort_keys=True, allow_nan=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"config at {place} is not plain JSON data: {error}") from None
        _check_keys(place, value)

    if not isinstance(config, Mapping):
        raise ConfigError(f"config={_arguments._shown(config)} is not a dictionary of plain JSON data")
    if config:
        put("", config)
    return settings


def _step(place: str, name: Any) -> str:
    """A key as a step of a path: in quotes if it could be taken for another path."""
    if not _arguments.is_text(name):
        raise ConfigError(f"config{place and ' at ' + place} has the key {_arguments._shown(name)}; keys are texts of valid characters")
    text: str = name
    is_plain = bool(text) and text.isprintable() and not any(mark in text for mark in '."\\')
    return text if is_plain else json.dumps(text)


def _check_keys(place: str, value: Any) -> None:
    """Checks that keys of dictionaries in lists are texts: JSON makes texts of numbers."""
    if isinstance(value, dict):
        for name, part in value.items():
            _step(place, name)
            _check_keys(place, part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_keys(place, part)
