"""Where a deliverable lies."""

from pathlib import Path

FILES = ("config.json", "labels.json", "tokenizer.json", "model.safetensors")


def find_model(folder: Path) -> Path:
    """The folder of the deliverable: `folder` itself, or model/ in a run folder.

    Raises:
        ValueError: `folder` is neither, or a file is missing.
    """
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise ValueError(f"run={folder} is not a run folder: {what}; {_REMEDY}")
    found = next((place for place in (folder, folder / "model") if (place / "config.json").is_file()), None)
    if found is None:
        began = (folder / "config.yaml").is_file()
        what = (
            "its training has not written model/, and run.log in it says how far it came"
            if began
            else "there is no model/config.json in it"
        )
        raise ValueError(f"run={folder} is not a run folder{' to use' if began else ''}: {what}; {_REMEDY}")
    missing = [name for name in FILES if not (found / name).is_file()]
    if missing:
        raise ValueError(f"run={folder} is not a run folder: {found} has no {' and no '.join(missing)}; {_REMEDY}")
    return found


_REMEDY = "name the folder that training wrote, or its model/ folder"
