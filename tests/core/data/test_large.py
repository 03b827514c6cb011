"""Large files are read block by block, and give the very rows that small ones do."""

import csv
import gzip
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from manyheads.config import Cutting, DataConfig, Long, OnBadRow, RunConfig, TokenizerConfig
from manyheads.config.data import CUT
from manyheads.data import column, token_cache
from manyheads.data.column import Column, chained, in_memory
from manyheads.data.formats import blocks, delimited, kinds, source
from manyheads.data.hashes import count_shared, repeats
from manyheads.data.opening import read_file
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.sources import read_split, read_splits
from manyheads.data.table import coded
from manyheads.data.token_cache import cached_tokens
from manyheads.data.tokenizer import train_tokenizer
from manyheads.data.tokens import drop_pages

LETTERS = st.text(alphabet='ab,"\n\r\t;é\u2028\x85 \0', max_size=8)
WORDS = st.sampled_from(["a", "", "NA", "null", "1", "1.50", "true", " x ", "two\nlines", "two\r\nlines", 'a "b"', "ß"])


@pytest.fixture
def in_blocks(monkeypatch, tmp_path):
    """Whatever is read from here on is read in blocks of a few rows, and nothing of it is kept."""

    def start(n_bytes: int = 97) -> None:
        monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
        for module, name, value in (
            (kinds, "LARGE", -1), (blocks, "BLOCK", n_bytes), (column, "KEPT", -1), (column, "AT_ONCE", 5),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, value)

    return start


def told(path: Path, *, in_blocks: bool) -> object:
    """All that reading a file says of it, or why it is refused."""
    try:
        table = read_file(path, large=in_blocks)
        cells = {name: list(table.column(name)) for name in table.names}
    except ValueError as problem:
        return str(problem)
    return table.names, cells, [int(one) for one in table.numbers], table.broken, table.source


@given(st.data(), st.sampled_from([".csv", ".tsv"]), st.integers(1, 40))
def test_a_table_in_blocks_is_what_the_csv_module_reads(tmp_path_factory, data, kind, n_bytes):
    path = tmp_path_factory.getbasetemp() / f"any{kind}"
    if data.draw(st.booleans(), "as written by the csv module"):
        rows = data.draw(st.lists(st.tuples(st.one_of(WORDS, LETTERS), WORDS), max_size=9))
        ends, sign = data.draw(st.sampled_from(["\n", "\r\n", "\r"])), "," if kind == ".csv" else "\t"
        content = io.StringIO(newline="")
        csv.writer(content, delimiter=sign, lineterminator=ends).writerows([("text", "label"), *rows])
        path.write_bytes(content.getvalue().encode())
    else:
        head = data.draw(st.sampled_from(["text,label", "text", "a, b", "a;b", "text\tlabel", '"a\nb",c', ""]))
        mark = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
        path.write_bytes(mark + f"{head}\n{data.draw(LETTERS)}\n{data.draw(LETTERS)}".encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", n_bytes)
        found = told(path, in_blocks=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited.DelimitedParser, "_by_arrow", lambda *words: None)
        expected = told(path, in_blocks=False)
    if isinstance(found, str) and "header" in found:  # which is told before what comes later
        assert isinstance(expected, str)
    else:
        assert found == expected


def test_arrow_reads_what_is_quoted_as_it_should_be(tmp_path, monkeypatch):
    rows = [(f'no. {at}, "so to say"\nof {at % 7}', "NA" if at % 3 else "null") for at in range(999)]
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("text", "label"), *rows])
    monkeypatch.setattr(delimited.DelimitedParser, "_by_csv", None)
    monkeypatch.setattr(blocks, "BLOCK", 5000)
    table = read_file(path, large=True)
    assert list(zip(table.column("text"), table.column("label"), strict=True)) == rows
    assert table.numbers == range(2, 1001)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ragged.csv", "text,label\na,x\nb\n\nc,d,e\n" * 20),
        ("latin.csv", "text,label\n" + "a,x\n" * 40 + "caf\xe9,y\n"),
        ("open.csv", "text,label\n" + "a,x\n" * 40 + '"b,x\n' + "c,y\n" * 90),
        ("broken.csv", "text,label\n" + "a,x\n" * 40 + '"b"c,x\n'),
        ("latin.txt", "a\n" * 90 + "caf\xe9\n"),
        ("marks.txt", "__label__a b\nc\n__label__d __label__e f\n" * 30),
        ("odd.jsonl", '{"text": "a"}\n\n{"text": \n3\n{"label": [1, {}]}\n' * 9),
        ("one.json", json.dumps({"data": [{"text": "a" * 300}]}, indent=1)),
        ("array.json", json.dumps([{"text": "a" * 300}] * 9)),
        ("empty.csv", ""),
        ("quotes.tsv", 'text\tlabel\n"he began\tx\nand ended"\ty\n' * 30),
    ],
)
def test_a_broken_file_in_blocks_is_told_in_the_same_words(name, content, tmp_path, in_blocks):
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))
    expected = told(path, in_blocks=False)
    in_blocks()
    assert told(path, in_blocks=True) == expected
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    found = told(packed, in_blocks=True)
    if isinstance(expected, str):
        assert str(found).replace(".gz", "") == expected
    else:
        assert isinstance(found, tuple)
        assert isinstance(expected, tuple)
        assert found[:-1] == expected[:-1]


@pytest.mark.parametrize("content", ['[{"text": "a"}, {"text": "b"}]', '[{"text": "a"}, {"text": "b"}]\n\n \n'])
def test_a_json_array_may_end_where_a_block_does(content, tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    path.write_text(content)
    for n_bytes in range(1, len(content) + 2):
        monkeypatch.setattr(blocks, "BLOCK", n_bytes)
        assert list(read_file(path).column("text")) == ["a", "b"], n_bytes


def test_what_follows_a_json_array_is_refused_wherever_a_block_ends(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    path.write_text(content := '[{"text": "a"}] {"text": "b"}]')
    for n_bytes in range(1, len(content) + 2):
        monkeypatch.setattr(blocks, "BLOCK", n_bytes)
        with pytest.raises(ValueError, match="Extra data"):
            read_file(path)


def test_half_a_letter_in_a_json_array_is_refused_wherever_a_block_ends(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    path.write_bytes(content := b'[{"text": "a"}, \xed{"text": "b"}]')
    for n_bytes in range(1, len(content) + 2):
        monkeypatch.setattr(blocks, "BLOCK", n_bytes)
        with pytest.raises(ValueError, match=r"rows\.json, row 2: byte 0xed at position 16 is not UTF-8"):
            read_file(path)


def test_a_json_array_that_ends_too_early_is_told_by_its_row(tmp_path, in_blocks):
    path = tmp_path / "cut.json"
    path.write_text(json.dumps([{"text": f"a\u00e4, ]{at}" * 9, "n": at} for at in range(40)], ensure_ascii=False)[:-9])
    in_blocks()
    assert str(told(path, in_blocks=True)).startswith(f"{path} is not JSON (row 40: ")
    path.write_text(json.dumps([{"text": f"a\u00e4, ]{at}" * 9, "n": at} for at in range(40)], ensure_ascii=False))
    assert list(read_file(path).column("n")) == [*range(40)]
    path.write_text("[1, 2" + 40 * " " + ", {}" + 99 * " " + "]")
    assert read_file(path).broken.keys() == {0, 1}


def test_a_large_file_of_a_broken_first_line_is_read_block_by_block(tmp_path, in_blocks, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\n' + '{"text": "b"}\n' * 99)
    in_blocks()
    asked, read = [], source.Source.read
    monkeypatch.setattr(source.Source, "read", lambda self, at, n: asked.append(n) or read(self, at, n))
    assert [*read_file(path).broken] == [0]
    assert max(asked) == 97


def rows_of(n_rows: int) -> list[dict[str, str]]:
    """Some texts repeat, in both classes, and two cells are bad."""
    texts = [f'text {at % 40 if at % 9 == 0 else at}, "so"\nand more' for at in range(n_rows)]
    rows = [
        {"text": text, "text_pair": f"pair {at % 3}", "label": "xyz"[at % 3], "extra": str(at)}
        for at, text in enumerate(texts)
    ]
    rows[17]["text"] = rows[30]["label"] = ""
    return rows


def write(path: Path, rows: list[dict[str, str]]) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=50)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, [*rows[0]])
            table.writeheader()
            table.writerows(rows)


def splits_of(data: DataConfig, **options) -> Any:
    """All that there is to know of the splits of some data."""
    splits = read_splits(data, 3, with_unread=True, **options)
    found = {}
    for name, rows in splits.by_name().items():
        unread = rows.unread
        columns = {key: list(cells) for key, cells in unread.columns().items()} if unread else {}
        cells = [None if one is None else list(one) for one in (rows.texts, rows.pairs, rows.targets, rows.sets)]
        numbers = [int(one) for one in rows.numbers]
        places = [int(one) for one in unread.positions] if unread else []
        ids = [int(one) for one in rows.labels]
        found[name] = (cells, ids, numbers, places, columns, rows.source, rows.digest(splits.labels))
    return found, splits.labels, splits.notes


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        pytest.param(way, kind, marks=[pytest.mark.slow] * ((at - of) % 3 == 2))
        for at, way in enumerate(["alone", "shards", "split column", "a test file, too", "few"])
        for of, kind in enumerate([".csv", ".jsonl", ".parquet"])
    ],
)
def test_rows_of_many_blocks_are_those_of_one(kind, way, tmp_path, in_blocks):
    rows, folder = rows_of(300), tmp_path / "data"
    folder.mkdir()
    settings = {"on_bad_row": OnBadRow.drop, "rows": 90 if way == "few" else 0}
    if way == "shards":
        for at in range(3):
            write(folder / f"train-0000{at}-of-00003{kind}", rows[at * 100 : at * 100 + 100])
    elif way == "a test file, too":
        write(folder / f"train{kind}", rows[:200])
        write(folder / f"test{kind}", [*rows[200:], rows[3]])
    else:
        parts = ("train", "train", "dev", "test")
        more = [{"split": parts[at % 4]} if way == "split column" else {} for at in range(300)]
        write(folder / f"all{kind}", [row | one for row, one in zip(rows, more, strict=True)])
    data = DataConfig(path=str(folder), **settings)
    expected = splits_of(data)
    in_blocks(499)
    assert splits_of(data) == expected
    assert isinstance(read_splits(data, 3).train.texts, Column)


def test_a_second_start_reads_no_text(tmp_path, in_blocks, monkeypatch):
    rows, data = rows_of(300), DataConfig(path=str(tmp_path / "all.csv"), on_bad_row=OnBadRow.drop, rows=200)
    data = replace(data, cache=str(tmp_path / "cache"))
    many = [row | {"labels": row["label"] and "|".join(sorted({row["label"], "z"}))} for row in rows]
    write(tmp_path / "all.csv", [{name: row[name] for name in row if name != "label"} for row in many])
    in_blocks(499)
    expected = splits_of(data)
    for name in ("blocks_of", "_parsed"):
        where = blocks if name == "blocks_of" else delimited.DelimitedParser
        monkeypatch.setattr(where, name, None)
    again = read_splits(data, 3)
    assert again.notes == expected[2]
    assert [len(one) for one in again.by_name().values()] == [len(one[1]) for one in expected[0].values()]
    monkeypatch.undo()
    in_blocks(499)
    assert splits_of(data) == expected
    files_of = sorted(path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir())
    assert files_of == ["index", "splits"]
    damaged = next((tmp_path / "cache").glob("splits-*"))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    assert splits_of(data) == expected
    assert splits_of(replace(data, on_bad_row=OnBadRow.drop, rows=0)) != expected
    write(tmp_path / "all.csv", [{name: row[name] for name in row if name != "label"} for row in many[40:]])
    assert len(read_splits(replace(data, rows=0), 3).train) < 220


def test_labels_and_targets_of_many_blocks_are_those_of_one(tmp_path, in_blocks):
    rows = rows_of(90)
    for at, row in enumerate(rows):
        row |= {"labels": "|".join("abc"[: at % 4]), "source": row["text"] or "x", "target": f"answer {at % 20}"}
        row["text"], row["label"] = row["source"], ""
    rows[5]["labels"] = "a|b|a"
    write(tmp_path / "all.csv", [{key: row[key] for key in ("text", "labels", "source", "target")} for row in rows])
    data = DataConfig(path=str(tmp_path / "all.csv"))
    answers = DataConfig(path=data.path, text="source")

    def every() -> list[object]:
        rows = read_split(data, "test", ["a", "b", "c"], multi=True)
        return [splits_of(data), splits_of(answers, answer="target"), list(rows.sets or []), list(rows.texts)]

    expected = every()
    in_blocks()
    assert every() == expected


def test_a_column_is_a_sequence(tmp_path, in_blocks):
    in_blocks()
    write(tmp_path / "all.csv", rows_of(99))
    texts = [row["text"] for row in rows_of(99)]
    column = read_file(tmp_path / "all.csv").column("text")
    assert isinstance(column, Column)
    assert column == texts
    assert (column[7], column[-1], column[20:31], column[90:500]) == (texts[7], texts[-1], texts[20:31], texts[90:])
    with pytest.raises(IndexError):
        column[99]
    some: Any = column.take([3, 50, 51, 98])
    assert list(some) == [texts[at] for at in (3, 50, 51, 98)]
    assert list(some.take([1, 3])) == [texts[50], texts[98]]
    assert column.take([5, 2, 5]) == [texts[5], texts[2], texts[5]]
    assert column[::-1] == texts[::-1]
    assert list(chained([some, in_memory(["x"]), column])) == [*some, "x", *texts]
    assert column.digest == read_file(tmp_path / "all.csv").column("text").digest != some.digest


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_file_that_changes_while_it_is_in_use_is_one_sentence(kind, tmp_path, in_blocks):
    in_blocks()
    path = tmp_path / f"all{kind}"
    write(path, rows_of(99))
    column = read_file(path).column("text")
    write(path, rows_of(98))
    with pytest.raises(ValueError, match=rf"all\{kind} was changed while it is in use: start again$"):
        list(column)


@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_lists_of_labels_are_judged_as_those_of_a_small_file(kind, tmp_path, in_blocks):
    labels = [["a"], ["a", "b"], []] if kind == ".jsonl" else ["a", "a|b", ""]
    for name in ("train", "test"):
        write(tmp_path / f"{name}{kind}", [{"text": f"{name} {at}", "labels": labels[at % 3]} for at in range(60)])
    data = DataConfig(path=str(tmp_path), cache=str(tmp_path / "cache"))
    expected = splits_of(data)
    in_blocks()
    assert splits_of(data) == expected == splits_of(data)


def test_a_label_that_only_a_row_left_out_lacks_is_said(tmp_path):
    (tmp_path / "a.csv").write_text(
        "text,labels\n" + "".join(f"text {at},{'ab'[at % 2]}\n" for at in range(60)) + ",\n"
    )
    splits = read_splits(DataConfig(path=str(tmp_path / "a.csv"), on_bad_row=OnBadRow.drop), 0)
    assert "a.csv: only rows that are left out have not just one label, yet each is answered by itself" in splits.notes


def test_a_file_that_is_renamed_has_another_role(tmp_path, in_blocks):
    rows = [row for row in rows_of(300) if row["text"] and row["label"]]
    write(tmp_path / "train.csv", rows[:200])
    write(tmp_path / "validation.csv", rows[200:])
    data = DataConfig(path=str(tmp_path), cache=str(tmp_path / "cache"))
    in_blocks()
    assert read_splits(data, 3).test is None
    (tmp_path / "validation.csv").rename(tmp_path / "test.csv")
    assert len(read_splits(data, 3).test or ()) == 98


def altered(path: Path, **changes: Any) -> None:
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    np.savez(path, **(arrays | {name: change(arrays[name]) for name, change in changes.items()}))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("splits", {"train labels": lambda one: one + 7}),
        pytest.param("splits", {"train labels": lambda one: one[:-1]}, marks=pytest.mark.slow),
        ("splits", {"train rows": lambda one: one + 10**6}),
        pytest.param("splits", {"train rows": lambda one: one[::-1]}, marks=pytest.mark.slow),
        ("splits", {"json": lambda one: np.frombuffer(b"[1]", dtype=np.uint8)}),
        ("splits", {"json": lambda one: np.frombuffer(b"[" * 10**5, dtype=np.uint8)}),
        ("index", {"blocks": lambda one: one + 2**50}),
        pytest.param("index", {"blocks": lambda one: one[:, :3]}, marks=pytest.mark.slow),
        ("index", {"blocks": lambda one: one[1:]}),
    ],
)
def test_what_is_remembered_is_made_again_where_it_does_not_fit(name, changes, tmp_path, in_blocks):
    rows = [row for row in rows_of(300) if row["text"] and row["label"]]
    write(tmp_path / "all.csv", rows)
    data = DataConfig(path=str(tmp_path / "all.csv"), cache=str(tmp_path / "cache"))
    in_blocks(499)
    expected = splits_of(data)
    altered(next((tmp_path / "cache").glob(f"{name}-*.npz")), **changes)
    assert splits_of(data) == expected


def test_another_file_of_the_same_size_and_time_is_one_sentence(tmp_path, in_blocks, monkeypatch):
    path = tmp_path / "all.csv"
    lines = [f"text {at},{'xy'[at % 2]}\n" for at in range(80)]
    path.write_text("".join(["text,label\n", *lines]))
    data = DataConfig(path=str(path), cache=str(tmp_path / "cache"))
    in_blocks()
    monkeypatch.setattr(blocks, "fingerprint", lambda path: "the same")
    read_splits(data, 3)
    path.write_text("".join(["text,label\n", *(line.replace(" ", "\n") for line in lines)]))
    with pytest.raises(ValueError, match=r"all\.csv is not what it was at its time of last change: touch it"):
        splits_of(data)


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 2), st.booleans(), st.none(), st.floats(0, 1))))
def test_cells_that_are_held_once_are_what_they_were(cells):
    held: Any = coded(chained([cells[:3], cells[3:]]) if cells else chained([[]]))
    assert [(type(one), one) for one in held] == [(type(one), one) for one in cells]
    assert repr(held) == repr(cells), "by which tune knows its data"
    assert len({(type(one), one) for one in held.values}) == len(held.values)


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_repeats_are_found_by_hash(one, other):
    found = dict(zip(*(part.tolist() for part in repeats(np.array(one, np.int64))), strict=True))
    assert found == {at: one.index(number) for at, number in enumerate(one) if one.index(number) < at}
    both = [at for at, number in enumerate(one) if number in other]
    expected = (len(both), both[0], other.index(one[both[0]])) if both else (0, 0, 0)
    assert count_shared(np.array(one, np.int64), np.array(other, np.int64)) == expected


@pytest.mark.parametrize(
    ("pair", "cutting"), [("", CUT), ("", Cutting(Long.windows, 5, 9)), ("", Cutting(Long.both)), ("text_pair", CUT)]
)
def test_tokens_of_a_large_table_are_those_of_a_small_one(pair, cutting, tmp_path, in_blocks, monkeypatch):
    write(tmp_path / "all.csv", [row for row in rows_of(300) if row["text"] and row["label"]])
    data = DataConfig(path=str(tmp_path / "all.csv"), text_pair=pair)
    rows = read_splits(data, 0).train
    tokenizer = train_tokenizer(rows, TokenizerConfig(vocab_size=200))
    expected = cached_tokens(rows, tokenizer, 8, tmp_path / "small", cutting=cutting)
    in_blocks()
    monkeypatch.setattr(token_cache, "PART", 7)
    rows, folder = read_splits(data, 0).train, tmp_path / "large"
    for _ in range(2):
        found = cached_tokens(rows, tokenizer, 8, folder, cutting=cutting)
        assert found.n_truncated == expected.n_truncated
        for name in ("ids_N", "offsets", "segments_N", "labels"):
            one, other = getattr(found, name), getattr(expected, name)
            assert one is other is None or torch.equal(one, other)
        assert (found.windows is None) == (expected.windows is None)
        assert all(map(torch.equal, found.windows or (), expected.windows or ()))
        monkeypatch.setattr(token_cache, "encode", None)
        drop_pages(found)
        assert torch.equal(found.ids_N, expected.ids_N)
    (path,) = folder.glob("tokens-*.safetensors")
    assert torch.equal(load_file(path)["ids"], expected.ids_N)


def test_of_many_rows_a_tokenizer_learns_from_some(tmp_path, monkeypatch):
    monkeypatch.setattr("manyheads.data.prepare_tokens.MAX_TRAINING_ROWS", 30)
    run = RunConfig(data=DataConfig(cache=str(tmp_path), rows=90))
    splits = read_splits(run.data, 0)
    tokenizer, _ = prepare_tokens(splits, run)
    assert "train: the tokenizer is learned from 30 of 90 rows, evenly spread" in splits.notes
    expected = train_tokenizer(splits.train.pick([*range(0, 90, 3)]), run.tokenizer)
    assert tokenizer.to_str() == expected.to_str()


MEASURED = """
import resource, sys
from manyheads.config import DataConfig
from manyheads.data.sources import read_splits
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
splits = read_splits(DataConfig(path=sys.argv[1]), 0)
assert len(splits.train) == 800_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_million_rows_take_little_memory(tmp_path):
    with (tmp_path / "all.csv").open("w") as file:
        file.write("text,label\n")
        file.writelines(
            f"{at} {'a text of some length, ' * 9},{'xy'[at % 2]}\n".replace(", ", " ") for at in range(10**6)
        )
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "all.csv")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 400_000, "KiB; as Python objects they took 1.5 GB"
