"""The text of several columns: how cells are joined, what is read of long ones; each verb takes the columns."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manyheads
from manyheads import TextData
from manyheads.cli.main import main
from manyheads.config import Cutting, DataConfig, Long
from manyheads.data.column import Column, in_memory, zipped
from manyheads.data.formats import blocks
from manyheads.data.formats.fields import FIELD, field_mark, join_cells, name_columns
from manyheads.data.sources import read_splits
from manyheads.data.tokenizer import add_field_mark, kept_ids
from manyheads.data.tokens import encode
from manyheads.distributed import faults
from manyheads.evaluation import results
from manyheads.inference.chunks import WantedColumns
from manyheads.inference.records import chunks_of_objects, chunks_of_table
from manyheads.runs.files import read_json
from tests.conftest import SPECIAL, WORDS, word_tokenizer

TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
]
CELLS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=8)


def tokenizer():
    made = word_tokenizer()
    add_field_mark(made)
    return made


@settings(deadline=None)
@given(st.lists(CELLS.map(lambda cell: f"a{cell}"), min_size=2, max_size=5))
def test_cells_are_joined_and_come_back(cells: list[str]) -> None:
    parts = [part.strip() for part in join_cells(cells).split(FIELD)]
    assert parts == [cell.replace(FIELD, " ").strip() for cell in cells]


def test_empty_cells_keep_their_place_unless_all_are() -> None:
    assert join_cells(["", "body"]) == f"{FIELD} body"
    assert join_cells(["title", None, "end"]) == f"title {FIELD}  {FIELD} end"
    assert join_cells(["", None]) == "" == join_cells([" ", "\u200b"])
    assert join_cells(["a", 3.0, True, float("nan"), 0.25]) == f"a {FIELD} 3 {FIELD} true {FIELD}  {FIELD} 0.25"
    assert join_cells(["a", np.int64(3), np.bool_(True)]) == f"a {FIELD} 3 {FIELD} true"
    assert join_cells(["a", ["b"]]) == ["b"]
    assert join_cells([f"a{FIELD}b", "c"]) == f"a b {FIELD} c"


def test_columns_are_joined_block_by_block(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    rows = [(f"t{at}", f"body {at}", f"c{at % 3}") for at in range(50)]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("title", "body", "label"), *rows])
    table = blocks.read_text_file(path, large=True)
    title, body = table.column("title"), table.column("body")
    whole = zipped([title, body], join_cells)
    assert len(whole.reads) > 1
    assert list(whole) == [f"{one} {FIELD} {two}" for one, two, _ in rows]
    some = zipped([title.take([3, 9, 30]), body.take([3, 9, 30])], join_cells)
    assert list(some) == [whole[3], whole[9], whole[30]]
    assert some.digest == whole.take([3, 9, 30]).digest != whole.digest
    assert whole.digest != zipped([body, title], join_cells).digest
    assert whole.digest != zipped([title, body], join_cells, "otherwise").digest
    mixed = zipped([["a", "b"], in_memory(["c", "d"])], join_cells)
    assert isinstance(mixed, Column)
    assert list(mixed) == [f"a {FIELD} c", f"b {FIELD} d"]


def shares(lengths: list[int], room: int) -> list[int]:
    """Tokens are taken from the longest part, one by one; of equals from the one that was shorter, or first."""
    kept = list(lengths)
    while sum(kept) > room:
        longest = max(kept)
        kept[min((lengths[at], at) for at, n in enumerate(kept) if n == longest)[1]] -= 1
    return kept


@given(
    st.lists(st.integers(0, 25), min_size=2, max_size=4),
    st.integers(0, 20),
    st.integers(12, 40),
    st.booleans(),
)
def test_no_column_is_cut_to_nothing(lengths: list[int], n_second: int, max_length: int, pairs: bool) -> None:
    made, drawn = tokenizer(), random.Random(str(lengths))
    mark = field_mark(made)
    texts = [[drawn.choice(WORDS) for _ in range(n)] for n in lengths]
    second = [drawn.choice(WORDS) for _ in range(n_second)]
    joined = f" {FIELD} ".join(" ".join(words) for words in texts)
    encoded = encode(made, [joined], [" ".join(second)] if pairs else None, None, max_length)
    parts = [*texts, *([second] if pairs else [])]
    room = max_length - (3 if pairs else 2) - (len(texts) - 1)
    kept = shares([len(words) for words in parts], room)
    expected = [2]
    for at, (words, n) in enumerate(zip(parts, kept, strict=True)):
        if 0 < at < len(texts):
            expected.append(mark)
        if at == len(texts):
            expected.append(3)
        expected += [made.token_to_id(word) for word in words[:n]]
    assert encoded.ids_N.tolist() == [*expected, 3]
    assert encoded.n_truncated == (sum(map(len, parts)) > room)
    assert all(n or not words for n, words in zip(kept, parts, strict=True))


def test_head_and_tail_of_each_column_and_windows_of_all() -> None:
    made = tokenizer()
    title, body = " ".join(WORDS), " ".join(WORDS[::-1])
    text = f"{title} {FIELD} {body}"
    ids = encode(made, [text], None, None, 11, Cutting(Long.both)).ids_N.tolist()
    names = [made.id_to_token(id) for id in ids]
    assert names == ["[CLS]", "good", *WORDS[-3:], FIELD, WORDS[-1], *WORDS[::-1][-3:], "[SEP]"]
    windows = encode(made, [text], None, None, 11, Cutting(Long.windows)).windows
    assert windows is not None
    assert windows.bounds.diff().tolist() == [11, 11, 11]


def test_marks_that_leave_no_room_are_cut_with_the_text() -> None:
    made = tokenizer()
    assert encode(made, [f"good {FIELD} " * 30], None, None, 8).offsets.tolist() == [0, 8]


def test_the_entry_of_the_sign_begins_as_the_mark_after_a_text() -> None:
    whole, made = word_tokenizer(), tokenizer()
    n = len(SPECIAL + WORDS)
    assert kept_ids(made, whole) == [*range(n), SPECIAL.index("[SEP]")]
    assert field_mark(whole) is None


def columns_of(kind: str, content: str, tmp_path: Path) -> list[str]:
    path = tmp_path / f"in.{kind}"
    path.write_text(content, encoding="utf-8")
    read = chunks_of_table if kind == "csv" else chunks_of_objects
    return [text for chunk in read(path, WantedColumns(["title", "body"], [], joins=True)) for text in chunk.texts]


def test_predict_joins_the_columns_of_its_input(tmp_path) -> None:
    assert columns_of("csv", "body,id,title\nb,1,t\nc,2,\n", tmp_path) == [f"t {FIELD} b", f"{FIELD} c"]
    rows = [{"title": "t", "body": "b"}, {"body": "c"}, {"title": None, "body": "d"}]
    found = columns_of("jsonl", "\n".join(map(json.dumps, rows)), tmp_path)
    assert found == [f"t {FIELD} b", f"{FIELD} c", f"{FIELD} d"]
    with pytest.raises(ValueError, match="its columns are title; rename one of them, or add"):
        columns_of("csv", "title\nt\n", tmp_path)
    remedy = name_columns(["title", "body"], ["Body", "label"])
    assert remedy.startswith("name its columns by data.text=[<column>,Body], or add")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            ["title", "words"],
            "has no column 'words' .data.text.: its columns are title, body, label; name its columns by "
            r"data.text=.title,<column>.,",
        ),
        (["title", "Body"], "did you mean body.$"),
        (["title", "label"], "name one column of rows.csv twice"),
    ],
)
def test_mistakes_in_names_of_columns(tmp_path, text, said) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("title,body,label\n" + "a,b,c\nd,e,f\n" * 9)
    with pytest.raises(ValueError, match=said):
        read_splits(DataConfig(source="files", path=str(path), text=text), 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.text=[title]"], "joins two columns or more"),
        (["data.text=[a,a]"], "names a column twice"),
        (["data.text=[a,b,c,d]", "data.max_length=8"], "leaves no room for the columns .* use at least 12"),
        (["data.text=[a,b]", "data.hub=imdb", "data.streaming=true"], "name one column, or leave out streaming"),
        (["data.text=[a,b]", "task=pretrain"], "task=pretrain is another: name one column"),
    ],
)
def test_settings_that_cannot_be(words, said) -> None:
    if words[-1] == "task=pretrain" and "pretrain" not in manyheads.plugin.names("task"):
        pytest.skip("no plugin adds this task")
    with pytest.raises(ValueError, match=said):
        manyheads.compose("train", ["data.path=rows.csv", *words])


def some_rows(n: int) -> list[dict[str, str]]:
    drawn, found = random.Random(0), []
    for at in range(n):
        label = ("ham", "spam")[at % 2]
        title = {"ham": "plan", "spam": "prize"}[label] if at % 5 else ""
        body = " ".join(drawn.choice(WORDS) for _ in range(drawn.choice([2, 30]))) + f" {label[0]}"
        found.append({"title": title, "body": body, "label": label})
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with (home / "mail.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["title", "body", "label"])
        table.writeheader()
        table.writerows(some_rows(120))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        patch.setattr(results, "write_page", lambda path, _: path.touch())
        words = [f"data.path={home / 'mail.csv'}", "data.text=[title,body]", "data.max_length=16", "optim.lr=0.01"]
        assert main(["train", *words, *TINY, "trainer.max_epochs=6", f"output={home / 'run'}"]) == 0
    return home


@pytest.fixture
def asked(home, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    monkeypatch.chdir(home)
    return home


def test_a_run_learns_from_the_columns_and_each_verb_takes_them(asked, capsys) -> None:
    assert read_json(asked / "run" / "model" / "config.json")["columns"]["text"] == ["title", "body"]
    found = read_json(asked / "run" / "summary.json")
    assert found["test"]["accuracy"]["value"] > 0.9
    assert main(["evaluate", "run=run", "data.path=mail.csv"]) == 0
    assert main(["predict", "run=run", "input=mail.csv", "output=out.csv"]) == 0
    with (asked / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["input_label"] == row["label"] for row in rows) > 110
    assert [row["title"] for row in rows] == [row["title"] for row in some_rows(120)]
    capsys.readouterr()
    assert main(["predict", "run=run", "text=prize\ta good film s"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["title"], one["body"], one["label"]) == ("prize", "a good film s", "spam")
    (asked / "new.csv").write_text("title,body\nplan,a film\n")
    assert main(["evaluate", "run=run", "data.path=new.csv"]) == 2
    assert "has no column 'label' (data.label): its columns are title, body; name one" in capsys.readouterr().err
    assert main(["predict", "run=run", "text=prize"]) == 2
    assert "has 0 tabs, but the model takes title, body" in capsys.readouterr().err
    assert main(["predict", "run=run", "input=mail.csv", "data.text=[title,body,label]"]) == 2
    assert "the model of run reads the 2 columns title, body" in capsys.readouterr().err


def test_python_takes_mappings(asked) -> None:
    classifier = manyheads.load("run")
    rows = [{"title": row["title"], "body": row["body"]} for row in some_rows(6)]
    joined = [join_cells([row["title"], row["body"]]) for row in rows]
    assert classifier.predict(rows) == classifier.predict(joined)
    with pytest.raises(ValueError, match=r"texts\[0\] has title, but the model takes the columns title, body"):
        classifier.predict([{"title": "a"}])
    with pytest.raises(ValueError, match=r"texts\[0\] has no column, but the model takes the columns title, body"):
        classifier.predict([{}])
    with pytest.raises(ValueError, match="texts is a single dict, but a list of texts is needed: put it in brackets"):
        classifier.predict(rows[0])


def test_rows_in_python_and_a_resumed_run(asked, monkeypatch) -> None:
    run = manyheads.compose("train", ["data.text=[title,body]", *TINY])
    data = TextData.from_rows(some_rows(60), run=run)
    assert data.splits is not None
    assert FIELD in data.splits.train.texts[0]
    assert data.tokenizer is not None
    assert field_mark(data.tokenizer) is not None
    command = ["train", "data.path=mail.csv", "data.text=[title,body]", "data.max_length=16", *TINY]
    command += ["trainer.max_steps=6", "checkpoint.every=2"]
    assert main([*command, "output=whole"]) == 0
    monkeypatch.setenv(faults.VARIABLE, "step:4:fail")
    faults.reset_counts()
    assert main([*command, "output=broken"]) == 1
    monkeypatch.delenv(faults.VARIABLE)
    faults.reset_counts()
    assert main(["train", "resume=broken"]) == 0
    one, other = ((asked / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert one == other
