"""Lines of text: one text a line, or the format of fastText, whose lines begin or end with labels."""

import re
from pathlib import Path

from manyheads.data.formats.source import RowBlock
from manyheads.errors import UserError

MARK = "__label__"
MARKED = re.compile(rf"(?:{MARK}\S*\s*)*")
TREC_LINE = re.compile(r"[A-Z]+:[A-Za-z]+ +\S")
TREC = (
    "is in TREC's format, CLASS:kind text: write it as .tsv, as by "
    r"(printf 'label\ttext\n'; iconv -f latin1 -t utf-8 FILE | sed 's/:[^ ]* /\t/') > NEW.tsv"
)


def parse_lines(path: Path, marked: bool, raw: bytes, number: int, last: bool, by_arrow: bool) -> RowBlock | None:
    """Whole lines, the first of which is row `number`, in the column `text`; blank ones are no rows. Of lines that are
    `marked` by labels these are the column `labels`.

    Raises:
        UserError: the lines are TREC's.
    """
    n_bytes = len(raw) if last else raw.rfind(b"\n") + 1
    if not n_bytes and not last:
        return None
    numbers: list[int] = []
    texts: list[str] = []
    for at, line in enumerate(raw[:n_bytes].decode().split("\n"), start=number):
        if line.strip():
            numbers.append(at)
            texts.append(line.strip("\r"))
    cells = {"text": texts}
    broken: dict[int, str] = {}
    if marked:
        found = [take_labels(line) for line in texts]
        cells = {"text": [text for text, _ in found], "labels": [labels or [""] for _, labels in found]}
        for at, (line, (_, labels)) in enumerate(zip(texts, found, strict=True)):
            if not labels and not line.startswith(MARK):
                broken[at] = f"has no {MARK} at its beginning or end"
    elif number == 1 and texts and all(map(TREC_LINE.match, texts)):
        raise UserError(f"{path} {TREC}")
    return RowBlock(
        names=[*cells],
        column=cells.__getitem__,
        records=lambda: zip(*cells.values(), strict=True),
        numbers=numbers,
        n_bytes=n_bytes,
        n_numbers=raw.count(b"\n", 0, n_bytes),
        broken=broken,
        by_arrow=True,  # never otherwise
    )


def is_marked(line: str) -> bool:
    """Whether a file that begins with this line is fastText's: a label is at the beginning of it, or at its end."""
    words = line.removeprefix("\ufeff").split()
    return any(word.startswith(MARK) for word in (*words[:1], *words[-1:]))


def take_labels(line: str) -> tuple[str, list[str]]:
    """A line of fastText as its text and its labels, which are at its beginning and at its end."""
    first = MARKED.match(line)
    assert first is not None, "it matches nothing, too"
    text, last = line[first.end() :], list[str]()
    while (words := text.rsplit(None, 1)) and words[-1].startswith(MARK) and words[-1] != MARK:
        text = words[0] if len(words) > 1 else ""
        last.insert(0, words[-1].removeprefix(MARK))
    return text, [*first[0].replace(MARK, " ").split(), *last]
