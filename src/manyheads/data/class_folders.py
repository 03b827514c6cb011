"""One text a file, in a folder for each class: train/pos/0_9.txt, as of aclImdb. Standard library only."""

from pathlib import Path

from manyheads.config import DataConfig
from manyheads.data.files import kind_of, text_of
from manyheads.data.naming import ALIASES, KNOWN, files_inside, is_called_split, require_typed_names, take_typed_names
from manyheads.data.rows import Table

NO_CLASS = "unsup"


def class_folders(folder: Path, data: DataConfig) -> dict[str, Path]:
    """Role to the folder that holds those of its classes; `all`: there is just one. None where `folder` holds tables,
    or texts of a split, beside them.

    Raises:
        ValueError: a typed name is that of no folder that holds folders of classes.
    """
    beside = files_inside(folder, data)
    if any(stem.lower() in KNOWN or kind_of(files[0]) != ".txt" for stem, files in beside.items()):
        return {}
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    splits = {path.name: path for path in inside if is_called_split(path, data) and len(_classes(path)) > 1}
    by_name = {name.lower(): path for name, path in splits.items()}
    found = {role: by_name[name] for role, names in ALIASES.items() for name in names if name in by_name}
    take_typed_names(found, splits, data)
    if "train" in found:
        names = [path.name for path in inside if len(_classes(path)) > 1]
        where = f"data.path={data.path}"
        require_typed_names(names, data, f"the name of no folder of classes in {where}", "its folders are named")
        return found if len(found) > 1 else {"all": found["train"]}
    is_flat = not any(path.name.lower() in KNOWN for path in inside) and len(_classes(folder)) > 1
    return {"all": folder} if is_flat else {}


def read_class_folders(folder: Path) -> Table:
    """The texts of all classes, each called as its folder is.

    Raises:
        ValueError: a file cannot be read; names it.
    """
    files = [path for one in _classes(folder) for path in _texts(one)]
    texts = [text_of(path, is_table=False).strip() for path in files]
    cells = {"text": texts, "label": [path.parent.name for path in files]}
    left_out = len(_texts(folder / NO_CLASS)) if (folder / NO_CLASS).is_dir() else 0
    return Table(
        names=["text", "label"],
        column=cells.__getitem__,
        numbers=range(1, len(files) + 1),
        source=folder.name,
        broken={at: f"the file {files[at]} is empty" for at, text in enumerate(texts) if not text},
        notes=[f"{folder.name}/{NO_CLASS}: {left_out:,} texts without a class are not read"] if left_out else [],
    )


def _classes(folder: Path) -> list[Path]:
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    return [one for one in inside if one.name != NO_CLASS and _has_texts(one)]


def _has_texts(folder: Path) -> bool:
    try:
        return any(path.suffix == ".txt" for path in folder.iterdir())
    except OSError:  # such as lost+found, which only root may open
        return False


def _texts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".txt")
