"""The verb `next`, as it is typed: what is read, set aside, chosen and written, and what is refused."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import manyheads
from manyheads import TextData, compose
from manyheads.cli.main import main
from manyheads.evaluation import results
from manyheads.inference.folder import load
from manyheads.plugins.active.next import known_rows
from manyheads.runs.config_file import save_run

NOUNS = ("film", "song", "walk", "talk", "game")
WORDS = {"dull": "bad", "slow": "bad", "bright": "good", "quick": "good"}
CPU = ("hardware=cpu", "hardware.precision=fp32")
TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *(*CPU, "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
]


def write(path: Path, header: list[str], rows: list[tuple]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A trained run, whose columns are review and stars, and texts without labels, some of them to be set aside."""
    home = tmp_path_factory.mktemp("home")
    rows = [(f"the {noun} of day {day} was {word}", label) for day in range(5) for noun in NOUNS
            for word, label in WORDS.items()]  # fmt: skip
    write(home / "rows.csv", ["review", "stars"], rows)
    new = [(at, f"{noun} {word} {at} {'xyz'[at % 3] * (at % 5)}", "web") for at, (noun, word) in enumerate(
        [(noun, word) for noun in NOUNS for word in WORDS for _ in range(4)])]  # fmt: skip
    aside = [
        (900, rows[0][0], "old"),
        (901, rows[7][0].upper(), "old"),
        (902, f" {new[3][1]} ", "old"),
        (903, "", "old"),
    ]
    write(home / "more.csv", ["id", "review", "from"], [*new, *aside])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        patch.setattr(results, "write_page", lambda path, _: path.touch())
        words = [f"data.path={home / 'rows.csv'}", "data.text=review", "data.label=stars", *TINY]
        assert main(["train", *words, "optim.lr=0.01", "trainer.max_epochs=4", f"output={home / 'run'}"]) == 0
    return home


@pytest.fixture
def typed(home, tmp_path, monkeypatch):
    """The words of a command that chooses eight texts, and where they are written."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    words = ["next", f"run={home / 'run'}", f"data.path={home / 'more.csv'}", "n=8", *CPU]
    return [*words, f"output={tmp_path / 'next.csv'}"], tmp_path / "next.csv"


def test_the_chosen_texts_are_new_and_wait_for_their_labels(home, typed, capsys):
    words, output = typed
    assert main(words) == 0
    chosen = read(output)
    assert list(chosen[0]) == ["id", "review", "from", "stars", "guess", "probability", "why"]
    assert len({row["review"] for row in chosen}) == 8
    by_text = {row["review"]: row for row in read(home / "more.csv")}
    for row in chosen:
        assert (row["stars"], row["from"]) == ("", "web")
        assert row["id"] == by_text[row["review"]]["id"]
    model = load(home / "run")
    for row, one in zip(chosen, model.predict([row["review"] for row in chosen]), strict=True):
        assert row["guess"] == one.label
        assert float(row["probability"]) == pytest.approx(one.probabilities[one.label], abs=1e-4)
        assert re.fullmatch(r"(good|bad) \(0\.\d\d\) or (good|bad) \(0\.\d\d\)", row["why"])
    said = capsys.readouterr().out
    assert "2 in the data of the run, 1 repeating another" in said
    assert "1 of 84 rows left out (first: row 85" in said.replace("more.csv: ", "")
    assert "fill in stars" in said


def test_the_same_words_choose_the_same_and_another_seed_others(typed):
    words, output = typed
    words = [*words, "by=both"]
    assert main(words) == 0
    first = output.read_bytes()
    output.unlink()
    assert main(words) == 0
    assert output.read_bytes() == first
    output.unlink()
    assert main([*words, "seed=1"]) == 0
    assert output.read_bytes() != first


def test_the_least_certain_come_first(home, typed):
    words, output = typed
    assert main([*words, "by=uncertainty"]) == 0
    texts = [row["review"] for row in read(home / "more.csv")][:80]
    margins = []
    for one in load(home / "run").predict(texts):
        first, second = sorted(one.probabilities.values(), reverse=True)
        margins.append(first - second)
    least = sorted(margins)[:8]
    found = [margins[texts.index(row["review"])] for row in read(output)]
    assert np.allclose(found, least, atol=1e-6)


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("diversity", "unlike those with labels"),
        ("both", r"(good|bad) \(0\.\d\d\) or (good|bad) \(0\.\d\d\); unlike"),
        ("disagreement", "network: .*, linear model: "),
        ("random", "drawn"),
    ],
)
def test_each_way_says_why(by, why, typed):
    words, output = typed
    assert main([*words, f"by={by}"]) == 0
    assert all(re.match(why, row["why"]) for row in read(output))
    assert len(read(output)) == 8


def test_what_was_labelled_is_learnt_from(home, typed, tmp_path):
    """The columns of the file are those of training, so that rows can be added as they are."""
    words, output = typed
    assert main(words) == 0
    labelled = [(row["review"], "good") for row in read(output)]
    rows = [(row["review"], row["stars"]) for row in read(home / "rows.csv")]
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.csv", ["review", "stars"], [*rows[:60], *labelled])
    write(folder / "test.csv", ["review", "stars"], rows[60:])
    data = TextData.from_run(compose("train", [f"data.path={folder}", "data.text=review", "data.label=stars", *TINY]))
    everything = [*data.splits.train.texts, *data.splits.validation.texts]
    assert {text for text, _ in labelled} <= {*everything}
    assert main([*words[:2], f"data.path={output}", *words[3:-1], f"output={tmp_path / 'again.csv'}"]) == 0
    assert all(row["stars"] == "" for row in read(tmp_path / "again.csv"))


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_other_files(kind, home, typed, tmp_path):
    words, _ = typed
    texts = [row["review"] for row in read(home / "more.csv")][:30]
    source, output = tmp_path / f"texts.{kind}", tmp_path / f"next.{'jsonl' if kind == 'txt' else kind}"
    if kind == "txt":
        source.write_text("\n".join(texts) + "\n", encoding="utf-8")
    elif kind == "jsonl":
        lines = [json.dumps({"text": text, "tags": ["a", at]}) for at, text in enumerate(texts)]
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"review": texts, "at": list(range(30))}), source)
    assert main([*words[:2], f"data.path={source}", *words[3:-1], f"output={output}"]) == 0
    if kind == "parquet":
        from pyarrow import parquet

        rows = parquet.read_table(output).to_pylist()
        assert [texts[row["at"]] for row in rows] == [row["review"] for row in rows]
    else:
        rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        assert {row["text"] for row in rows} <= {*texts}
    assert len(rows) == 8
    assert all(row["stars"] == "" and row["guess"] in ("good", "bad") for row in rows)
    if kind == "jsonl":
        assert [texts[row["tags"][1]] for row in rows] == [row["text"] for row in rows]


def test_any_number_of_labels(label_folder, tmp_path, capsys):
    texts = [f"{one} {other}" for one in ("good", "bad", "so", "film") for other in ("a", "the", "good", "fun")]
    write(
        tmp_path / "more.csv", ["text", "labels"], [(text, "good" if at == 0 else "") for at, text in enumerate(texts)]
    )
    words = [f"run={label_folder}", f"data.path={tmp_path / 'more.csv'}", "n=16", *CPU, "by=uncertainty"]
    assert main(["next", *words, f"output={tmp_path / 'next.csv'}"]) == 0
    chosen = read(tmp_path / "next.csv")
    assert {row["text"]: row["labels"] for row in chosen} == dict.fromkeys(texts, "") | {texts[0]: "good"}
    thresholds, closest = dict(zip(["bad", "good", "so-so"], [0.5, 0.35, 0.6], strict=True)), []
    for row, one in zip(chosen, load(label_folder).predict([row["text"] for row in chosen]), strict=True):
        assert row["guess"] == "|".join(one.labels)
        close = []
        for name, p in one.probabilities.items():
            limit = thresholds[name]
            close.append(1 - abs(p - limit) / (1 - limit if p >= limit else limit))
        closest.append(max(close))
    assert closest == sorted(closest, reverse=True)
    assert "the model comes without its data" in capsys.readouterr().out
    assert main(["next", *words[:-1], f"output={tmp_path / 'both.csv'}"]) == 0


def test_pairs_of_texts(pair_folder, tmp_path, capsys):
    pairs = [(f"good {one}", f"{other} film") for one in ("a", "the", "fun") for other in ("bad", "so")]
    words = [f"run={pair_folder}", "n=4", *CPU, f"output={tmp_path / 'next.csv'}"]
    write(tmp_path / "one.csv", ["text"], [(text,) for text, _ in pairs])
    assert main(["next", *words, f"data.path={tmp_path / 'one.csv'}"]) == 2
    assert "data.text_pair=<column>" in capsys.readouterr().err
    write(tmp_path / "two.csv", ["text", "text_pair"], pairs)
    assert main(["next", *words, f"data.path={tmp_path / 'two.csv'}"]) == 0
    assert {(row["text"], row["text_pair"]) for row in read(tmp_path / "next.csv")} <= {*pairs}


def test_a_run_of_rows_in_python(tmp_path, monkeypatch, capsys):
    """Its rows are not there any more, which is said."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    rows = [(f"the {noun} of {day} was {word}", label) for day in range(5) for noun in NOUNS for word, label in
            WORDS.items()]  # fmt: skip
    run = compose("train", [*TINY, "trainer.max_steps=2", f"output={tmp_path / 'run'}"])
    manyheads.train(run, data=TextData.from_rows(rows, run=run))
    (tmp_path / "more.txt").write_text("a film\na song\n", encoding="utf-8")
    capsys.readouterr()
    words = [f"run={tmp_path / 'run'}", f"data.path={tmp_path / 'more.txt'}", f"output={tmp_path / 'next.csv'}"]
    assert main(["next", *words, *CPU]) == 0
    assert "the model comes without its data" in capsys.readouterr().out
    assert len(read(tmp_path / "next.csv")) == 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["data.path="], "data.path"),
        (["n=0"], "n=0"),
        (["by=cleverness"], "uncertainty, diversity, both, disagreement or random"),
        (["data.text=body"], "data.text"),
        (["data.label=stars"], "data.label"),
        (["data.rename=names.csv"], "names.csv does nothing here, as texts are chosen by what the model answers"),
        (["data.streaming=true"], "data.streaming"),
        (["data.on_bad_row=raise"], "row 85"),
    ],
)
def test_mistakes_are_one_sentence(more, says, typed, capsys):
    words, output = typed
    if says.startswith("names.csv"):
        pytest.importorskip("manyheads.plugins.tables")
    assert main([*words, *more]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err
    assert not output.exists()


def test_a_file_that_people_have_filled_in_is_not_replaced(typed, capsys):
    words, output = typed
    output.write_text("text,label\na film,good\n")
    assert main(words) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert output.read_text() == "text,label\na film,good\n"


def test_other_refusals(home, typed, model_folder, tmp_path, capsys):
    words, _ = typed
    more = [f"data.path={home / 'more.csv'}", *CPU, f"output={tmp_path / 'next.csv'}"]
    for changed, says in (
        ([*words[:2], *words[3:]], "data.path=unlabelled.csv"),
        (words[:-1], "output=next.csv"),
        (["next", *words[2:]], "run="),
        ([*words[:2], f"data.path={home / 'rows.csv'}", *words[3:]], "no text that is new"),
        (["next", f"run={model_folder}", "by=disagreement", "data.text=review", *more], "has none: choose by=both"),
    ):
        assert main(changed) == 2
        assert says in capsys.readouterr().err


def test_more_texts_than_are_considered(home, typed):
    words, output = typed
    assert main([*words, "sample=10", "n=100"]) == 0
    assert len(read(output)) == 10


def test_to_standard_output_go_rows_alone(home, typed, capsys):
    words, _ = typed
    assert main([*words[:-1], "output=-"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    assert list(rows[0]) == ["id", "review", "from", "stars", "guess", "probability", "why"]


def test_texts_of_several_columns(home, typed, tmp_path, monkeypatch):
    """Both columns are in the file that is written."""
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    rows = [(row["review"], f"on day {at}", row["stars"]) for at, row in enumerate(read(home / "rows.csv"))]
    write(tmp_path / "rows.csv", ["title", "body", "stars"], rows)
    write(tmp_path / "more.csv", ["body", "title", "text"], [(f"{at} x", f"a {at}", "not read") for at in range(9)])
    words = [f"data.path={tmp_path / 'rows.csv'}", "data.text=[title,body]", "data.label=stars", *TINY]
    assert main(["train", *words, "trainer.max_steps=2", f"output={tmp_path / 'run'}"]) == 0
    words = [f"run={tmp_path / 'run'}", f"data.path={tmp_path / 'more.csv'}", f"output={tmp_path / 'next.csv'}", *CPU]
    assert main(["next", *words, "n=4"]) == 0
    chosen = read(tmp_path / "next.csv")
    assert list(chosen[0])[:4] == ["body", "title", "text", "stars"]
    assert {(row["body"], row["title"]) for row in chosen} < {(f"{at} x", f"a {at}") for at in range(9)}


def test_rows_labelled_above_classes_are_known(tmp_path):
    """The run has learnt from them, too."""
    pytest.importorskip("manyheads.plugins.hierarchy")
    rows = [(f"{word} {at}", f"sound/{word}") for at in range(10) for word in ("meow", "bark")]
    above = {f"meow or bark {at}" for at in range(5)}
    file = write(tmp_path / "rows.csv", ["text", "label"], [*rows, *((text, "sound") for text in above)])
    save_run(compose("train", [f"data.path={file}", "data.hierarchy=/"]), tmp_path / "config.yaml")
    assert {*known_rows(tmp_path, [])[-1].texts} == above


def test_texts_of_labels_are_known(tmp_path):
    """The run has learnt from them, too."""
    pytest.importorskip("manyheads.plugins.fewshot")
    file = write(
        tmp_path / "rows.csv", ["text", "label"], [(f"{word} {at}", word) for at in range(20) for word in WORDS]
    )
    texts = write(tmp_path / "labels.csv", ["label", "text"], [("dull", "without a spark")])
    run = compose("train", [f"data.path={file}", f"data.descriptions={texts}"])
    save_run(run, tmp_path / "config.yaml")
    assert "without a spark" in [*known_rows(tmp_path, [])[0].texts]
    texts.unlink()
    notes = list[str]()
    assert "dull 3" in [text for rows in known_rows(tmp_path, notes) for text in rows.texts], "the others are known yet"
    assert len(notes) == 1
    assert str(texts) in notes[0]


def test_texts_of_a_teacher_wait_for_their_labels(tmp_path):
    """Whether or not the run has learnt from texts of labels as well."""
    pytest.importorskip("manyheads.plugins.fewshot")
    pytest.importorskip("manyheads.plugins.transfer")
    rows = [(f"{word} {at}", word) for at in range(20) for word in WORDS]
    file = write(tmp_path / "rows.csv", ["text", "label"], rows)
    texts = write(tmp_path / "labels.csv", ["label", "text"], [("dull", "without a spark")])
    answers = write(tmp_path / "answers.csv", ["text", *WORDS], [("who knows", *(1 for _ in WORDS))])
    for further in ([], [f"data.descriptions={texts}"]):
        run = compose("train", [f"data.path={file}", f"teacher={answers}", *further])
        save_run(run, tmp_path / "config.yaml")
        known = [text for some in known_rows(tmp_path, []) for text in some.texts]
        assert "who knows" not in known
        assert ("without a spark" in known) is bool(further)
        (tmp_path / "config.yaml").unlink()


def test_it_is_said_why_what_was_learnt_from_is_not_known(tmp_path):
    rows = [(f"{word} {at}", word) for at in range(20) for word in WORDS]
    file, notes = write(tmp_path / "rows.csv", ["text", "label"], rows), list[str]()
    save_run(compose("train", [f"data.path={file}"]), tmp_path / "config.yaml")
    file.unlink()
    assert known_rows(tmp_path, notes) == []
    assert len(notes) == 1
    assert f"data.path={file} does not exist" in notes[0]
