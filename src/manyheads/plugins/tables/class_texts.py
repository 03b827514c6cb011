"""Texts that lie in a folder for each class as a table."""

from hashlib import blake2b
from pathlib import Path

from manyheads.data.column import in_memory, sliced_column
from manyheads.data.formats.source import text_of
from manyheads.data.table import RawTable


def table_of_texts(folder: Path, files: list[Path]) -> RawTable:
    """The texts of `files`, one a file, each of the class that its folder in `folder` is called.

    Raises:
        UserError: a file cannot be read; names it.
    """
    facts = [(str(path), path.stat()) for path in files]
    identity = repr([(path, one.st_size, one.st_mtime_ns) for path, one in facts])
    bytes_per_text = sum(one.st_size for _, one in facts) / max(1, len(files))

    def read(_: int, rows: slice) -> list[str]:
        return [text_of(path).strip() for path in files[rows]]

    texts = sliced_column(read, [len(files)], blake2b(identity.encode()).hexdigest(), bytes_per_text)
    cells = {"text": texts, "label": in_memory([path.parent.name for path in files])}
    return RawTable(
        names=["text", "label"],
        column=cells.__getitem__,
        numbers=range(1, len(files) + 1),
        source=folder.name,
        broken={at: f"the file {files[at]} is empty" for at, text in enumerate(texts) if not text},
    )
