"""Pieces of the sentences that users read: values as they are typed, names, commands. Standard library only."""

from enum import Enum
from pathlib import Path
from typing import Any

MOST_NAMES = 12  # that a sentence lists


def format_value(value: Any) -> str:
    """A value as a sentence quotes it: as typed, on one line, shortened."""
    if isinstance(value, Enum):
        return value.name
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list) and len(value) > 8:
        return f"{len(value)} values"
    try:
        text = str(value)
    except ValueError:  # Python prints no int of more than 4300 digits
        text = "a very long number"
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def format_list(value: Any) -> str:
    """A value, or the values of a list, as they are typed."""
    return f"[{', '.join(map(format_value, value))}]" if isinstance(value, list) else format_value(value)


def list_names(names: list[str]) -> str:
    """Names as a sentence lists them: of many the first, each shortened."""
    shown = ", ".join(map(format_value, names[:MOST_NAMES]))
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES:,} more"


def count_rows(n: int) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{n:,} row{'s' * (n != 1)}"


def one_of(names: list[str]) -> str:
    """`a, b or c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def first_line(problem: BaseException) -> str:
    """Of what an error says, to be quoted in a sentence; its kind where it says nothing."""
    lines = str(problem).strip().splitlines()
    return lines[0].strip().rstrip(".:")[:200] if lines else type(problem).__name__


def install_extra(name: str) -> str:
    """The command for the packages of an extra. No index has the package: it is installed from a clone."""
    return f"pip install -e '.[{name}]' in the clone of manyheads"


VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
)  # of older tokenizers


def make_tokenizer(folder: str | Path) -> str:
    """The command that makes the tokenizer.json of a model of transformers whose tokenizer is in older files."""
    made = f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    return f'python -c "from transformers import AutoTokenizer; {made}"'


def older_tokenizer(folder: Path) -> str:
    """What to do where a folder has no tokenizer.json, but older files of a tokenizer; empty: it has none of these."""
    older = next((name for name in VOCABULARIES if (folder / name).is_file()), "")
    return older and f"make one of its {older} by {make_tokenizer(folder)}"
