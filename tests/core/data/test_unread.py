"""Files of other kinds are named for what they are."""

import pytest

from manyheads.config import DataConfig
from manyheads.data.formats.text_lines import TREC

UNPACK = "is an archive: unpack it, and give the file or the folder that was in it"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((f"a{kind}", UNPACK) for kind in (".zip", ".tar.gz", ".tgz", ".7z", ".csv.zip", ".TAR.XZ")),
        ("train_5500.label", TREC),
        ("cooking.train", "is in fastText's format, which is read from a .txt: let its name end with .txt"),
    ],
)
def test_a_kind_that_is_known_has_a_remedy(name, why, tmp_path, complaint):
    path = tmp_path / name
    path.write_text("__label__a text\n")
    assert complaint(DataConfig(path=str(path))) == f"data.path={path} {why}"
    (tmp_path / "README").write_text("about")
    assert complaint(DataConfig(path=str(tmp_path))) == f"data.path={tmp_path} holds no data file: its {name} {why}"
