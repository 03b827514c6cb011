"""Secrets have no place among settings, which are written into the folder of the run. Standard library only."""

import os
import re
from collections.abc import Mapping
from typing import Any

IN_ADDRESS = re.compile(r"//[^/\s@]+@")  # https://user:password@host
NAMED = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
SHORTEST = 8  # letters of a secret
QUESTION = "text"  # of predict and look: it is answered, and may speak of any address
REMEDY = "settings are written into the folder of the run: leave it to the environment"


def refuse_secrets(values: Any, name: str = "") -> None:
    """Refuse a text that holds what a variable such as $HF_TOKEN holds, or an address with a name or password in it.

    Raises:
        ValueError: names the setting, never its value.
    """
    known = {word: value for word, value in os.environ.items() if NAMED.search(word) and len(value) >= SHORTEST}
    _refuse(values, name, known)


def _refuse(values: Any, name: str, known: dict[str, str]) -> None:
    if isinstance(values, Mapping):
        for key, value in values.items():
            _refuse(value, f"{name}.{key}" if name else str(key), known)
    elif isinstance(values, list):
        for value in values:
            _refuse(value, name, known)
    elif isinstance(values, str):
        if name != QUESTION and IN_ADDRESS.search(values):
            raise ValueError(f"{name} holds an address with a name or a password in it, and {REMEDY}")
        for word, secret in known.items():
            if secret in values:
                raise ValueError(f"{name} holds what ${word} holds, and {REMEDY}")
