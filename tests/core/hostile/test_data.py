"""Data of strangers: files that are truncated, that lie about themselves, or that unpack without end."""

import bz2
import gzip
import json
import lzma
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

ROWS = [{"text": f"number {n} {('purrs', 'barks')[n % 2]}", "label": ("cat", "dog")[n % 2]} for n in range(40)]
GROW = 192 * 2**20  # bytes that a small file unpacks to


def packed(opener: Any, **fast: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with opener.open(path, "wb", **fast) as file:
            file.write(b"text,label\n")
            for _ in range(GROW // 2**24):
                file.write(b"x" * 2**24)

    return write


def text(content: str | bytes | Callable[[], str]) -> Callable[[Path], None]:
    """A large one is made when it is written, not in each process that collects tests."""

    def write(path: Path) -> None:
        made = content() if callable(content) else content
        path.write_bytes(made if isinstance(made, bytes) else made.encode())

    return write


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
        path.write_bytes(change(path.read_bytes()))

    return write


REPEATED = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 20_000, pyarrow.int32()), ["x" * 10_000_000])
FILES: dict[str, Callable[[Path], None]] = {
    "a.csv.gz": packed(gzip, compresslevel=1),
    "a.csv.xz": packed(lzma, preset=0),
    "a.jsonl.bz2": packed(bz2),
    "million columns.csv": text(lambda: ",".join(f"c{n}" for n in range(10**6)) + "\n" + "a\n" * 100_000),
    "no text.csv": text("a,b\n" + "x,y\n" * 9),
    "one cell.csv": text(lambda: "text,label\n" + '"' + "x" * 20_000_000),
    "nul.csv": text("text,label\n\0\0\0,\0\n" * 9),
    "nul header.csv": text("te\0xt,label\nx,y\n"),
    "other.csv": text(b"\x7fELF" + bytes(range(256)) * 99),
    "empty.csv": text(""),
    "long label.csv": text("text,label\nx,a\ny,b\n" + "z," + "l" * 10**6 + "\n\n,\n"),
    "deep.jsonl": text('{"text": ' + "[" * 100_000 + "\n"),
    "deep.json": text("[" * 1_000_000),
    "digits.jsonl": text('{"text": "a", "label": ' + "9" * 10_000 + "}\n"),
    "keys.jsonl": text(lambda: "".join(json.dumps({f"k{n}": n}) + "\n" for n in range(100_000))),
    "surrogate.jsonl": text('{"text": "\\ud800", "label": "a"}\n{"text": "x", "label": "\\udfff"}\n'),
    "one key.json": text('{"__class__": "os.system", "text": "a"}'),
    "repeated.parquet": parquet(text=REPEATED, label=pyarrow.array(["a", "b"] * 10_000)),
    "lists.parquet": parquet(text=pyarrow.array([["a"]] * 40), label=pyarrow.array(["a", "b"] * 20)),
    "pickles.parquet": parquet(text=pyarrow.array([b"cos\nsystem\n"] * 40), label=pyarrow.array(["a", "b"] * 20)),
    "cut.parquet": damaged(lambda content: content[:-20]),
    "head.parquet": damaged(lambda content: b"PAR1" + content[-8:]),
    "long.parquet": damaged(lambda content: content[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1"),
    "noise.parquet": damaged(lambda content: content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :]),
    "pickle.csv": text(b"\x80\x04\x95"),
}


# They unpack as a.csv.gz does; test_delimited.py has a table of millions of columns.
OF_A_KIND = ("a.csv.xz", "a.jsonl.bz2", "million columns.csv")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in OF_A_KIND), id=name) for name in FILES]
)
def test_a_hostile_file_is_one_sentence(name, victim, tmp_path):
    FILES[name](tmp_path / name)
    victim.refused(["train", f"data.path={tmp_path / name}", "output=run"], tmp_path)
    assert not (tmp_path / "run").exists()


def test_any_damaged_parquet_is_read_or_refused(victim, tmp_path):
    """Bytes of the footer, which says where everything is, changed one after the other."""
    from manyheads.data.opening import read_file

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    whole = path.read_bytes()
    for at in range(len(whole) - 700, len(whole), 3):
        content = bytearray(whole)
        content[at] ^= 0xFF
        path.write_bytes(content)
        said = str(path)
        try:
            table = read_file(path)
            [table.column(name) for name in table.names]
        except ValueError as error:
            said = str(error)
        assert str(path) in said


@pytest.mark.parametrize(
    "name", ["a.zip", "a.tar", "a.tar.gz", "a.pkl", "a.arrow", "a.csv.zip", "a.db", "a.h5", "a.py"]
)
def test_other_archives_are_not_read(name, victim, tmp_path, payloads, canary):
    (tmp_path / name).write_bytes(payloads["a pickle"])
    packed = any(part in name for part in (".zip", ".tar"))
    said = "is an archive: unpack it" if packed else "is not a kind of file that is read"
    victim.refused(["train", f"data.path={tmp_path / name}"], tmp_path, said)
    assert not canary.exists()


def saved(folder: Path, features: dict[str, Any] | None = None, cells: dict[str, list[Any]] | None = None) -> Path:
    import datasets

    made = datasets.Dataset.from_dict(cells or {key: [row[key] for row in ROWS] for key in ROWS[0]})
    made.save_to_disk(folder)
    if features:
        info = json.loads((folder / "dataset_info.json").read_text())
        (folder / "dataset_info.json").write_text(json.dumps(info | {"features": features}))
    return folder


def test_cells_that_name_an_address_are_not_opened(victim, tmp_path):
    """A dataset may call its column pictures or sounds, each with an address: decoding them would fetch it."""
    address = {"bytes": None, "path": "http://127.0.0.1:9/evil.png"}
    cells = {"text": [address] * 40, "label": [row["label"] for row in ROWS]}
    for kind in ("Image", "Audio", "Video", "Pdf"):
        features = {"text": {"_type": kind}, "label": {"dtype": "string", "_type": "Value"}}
        folder = saved(tmp_path / kind, features, cells)
        victim.refused(["train", f"data.path={folder}", "output=run"], tmp_path)


@pytest.mark.parametrize("change", [
    {"_data_files": [{"filename": "/etc/passwd"}]}, {"_data_files": [{"filename": "../../rows.csv"}]},
    {"_data_files": "x"}, {"_split": {}}, {"_format_type": "evil"}, {"_format_kwargs": {"x": 1}}, {"_fingerprint": 3},
    {"_format_columns": ["no"]},
])  # fmt: skip
def test_a_saved_dataset_that_lies_is_read_or_refused(change, victim, tmp_path):
    folder = saved(tmp_path / "saved")
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | change))
    answer = victim.attempt(["train", f"data.path={folder}", "dry=true", "hardware=cpu"], tmp_path)
    assert answer["code"] in (0, 2), answer["err"]
    assert answer["code"] == 0 or answer["err"].count("\n") == 1
    victim.harmless(answer)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "~/x", "./data", "https://evil.org/x", "hf://evil/x", "a/b/c",
                                  "x" * 300, "s3://bucket", "user:password@host/x", "a\nb", "..", "-x"])  # fmt: skip
def test_an_id_of_the_hub_is_no_path_and_no_address(name, victim, tmp_path):
    victim.refused(["train", f"data.hub={name}"], tmp_path, "is no dataset id, such as stanfordnlp/imdb")


def test_tokens_in_the_cache_are_never_unpickled(victim, finished, tmp_path, payloads, canary):
    train = ["train", f"data.path={finished / 'rows.csv'}", "debug=fast", "hardware=cpu", "trainer.max_steps=2"]
    train.append("linear=false")
    assert victim.attempt([*train, "output=one"], tmp_path)["code"] == 0
    kept = [*(tmp_path / "cache").iterdir()]
    assert len(kept) > 3
    for path in kept:
        path.write_bytes(payloads["an optimiser that reduces"])
    answer = victim.attempt([*train, "output=two"], tmp_path)
    assert answer["code"] == 0
    victim.harmless(answer)
    assert not canary.exists()
    models = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]
