"""Which rows `evaluate` reads: the run's own, or those named, in the columns the model was trained on."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyheads.cli.compose import compose
from manyheads.config import DataConfig, EvaluateConfig, ModelConfig, RunConfig, run_data
from manyheads.config.data import data_name
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows
from manyheads.evaluation.evaluation_data import find_data, results_name, with_columns
from manyheads.inference.format import ColumnNames, Settings
from manyheads.runs.config_file import read_run, save_run

LABELS = ["bad", "good", "so-so"]


def settings(pairs: bool = False, **columns: Any) -> Settings:
    return Settings(
        vocab_size=9, n_classes=3, max_length=9, pairs=pairs, columns=ColumnNames(**columns), model=ModelConfig()
    )


def written(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("text", "label")) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def rows_of(split: str, n: int = 12) -> list[tuple[str, str]]:
    return [(f"{split} text {at} of it", LABELS[at % 3]) for at in range(n)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run folder trained on <tmp>/data with all three splits."""
    for split in ("train", "validation", "test"):
        written(tmp_path / "data" / f"{split}.csv", rows_of(split))
    (tmp_path / "run").mkdir()
    save_run(RunConfig(data=DataConfig(source="files", path=str(tmp_path / "data"))), tmp_path / "run/config.yaml")
    return tmp_path / "run"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_without_data_the_split_is_the_runs_own(home: Path, split: str) -> None:
    task = find_data(EvaluateConfig(run=str(home), split=split), home, settings(), LABELS)
    assert task.rows.texts == [text for text, _ in rows_of(split)]
    assert (task.name, task.split) == ("data", split)
    assert task.splits is not None


def test_classes_keep_the_models_order(home: Path) -> None:
    turned = LABELS[::-1]
    task = find_data(EvaluateConfig(run=str(home)), home, settings(), turned)
    assert [turned[label] for label in task.rows.labels] == [label for _, label in rows_of("test")]


def test_own_data_that_changed_or_lacks_the_split_is_one_sentence(home: Path) -> None:
    with pytest.raises(ValueError, match="has changed since training: its labels are bad, good, so-so, the model"):
        find_data(EvaluateConfig(run=str(home)), home, settings(), ["bad", "good", "fine"])
    (home.parent / "data" / "test.csv").unlink()
    with pytest.raises(ValueError, match=r"split=test is not in the data of run=\S+run: choose split=validation"):
        find_data(EvaluateConfig(run=str(home)), home, settings(), LABELS)


def digests_of(home: Path) -> None:
    """As training leaves them."""
    run = read_run(home / "config.yaml")
    splits = read_rows(run, with_test=True)
    digests = {name: rows.digest(splits.labels) for name, rows in splits.by_name().items()}
    (home / "summary.json").write_text(json.dumps({"digests": digests}))


def test_rows_that_were_learnt_from_are_never_judged_as_the_runs_own_test(tmp_path: Path) -> None:
    """Of a file that has grown other rows are carved out."""
    path, home = written(tmp_path / "all.csv", rows_of("any", 60)), tmp_path / "run"
    home.mkdir()
    save_run(RunConfig(data=DataConfig(source="files", path=str(path))), home / "config.yaml")
    digests_of(home)
    config = EvaluateConfig(run=str(home))
    n_rows = len(find_data(config, home, settings(), LABELS).rows)
    written(path, rows_of("any", 90))
    for split in ("train", "validation", "test"):
        with pytest.raises(
            ValueError, match=f"^all.csv has changed since training: .* in its {split} split; give the same"
        ):
            find_data(replace(config, split=split), home, settings(), LABELS)
    (home / "summary.json").write_text("{}")
    assert len(find_data(config, home, settings(), LABELS).rows) > n_rows, "a run from before has no digests"
    path.rename(tmp_path / "moved.csv")
    with pytest.raises(
        ValueError, match=r"^data.path=\S+all.csv, which run=\S+run was trained on, is not there any more: put"
    ):
        find_data(config, home, settings(), LABELS)


def test_a_split_that_is_a_file_of_its_own_may_change(home: Path) -> None:
    digests_of(home)
    config, folder = EvaluateConfig(run=str(home)), home.parent / "data"
    assert find_data(config, home, settings(), LABELS).notes == []
    written(folder / "test.csv", rows_of("newer"))
    assert find_data(config, home, settings(), LABELS).notes == [
        "test.csv: the test split has other rows than when the run was trained"
    ]
    written(folder / "train.csv", rows_of("train", 15))
    with pytest.raises(ValueError, match=r"^test.csv has changed since training"):
        find_data(config, home, settings(), LABELS)
    written(folder / "test.csv", rows_of("test"))
    assert find_data(config, home, settings(), LABELS).notes == [], "the rows that are judged are those of then"


def test_a_digest_tells_texts_pairs_answers_and_their_order() -> None:
    rows = Rows(["a", "b"], None, [0, 1], "x.csv", [1, 2])
    same = rows.digest(["no", "yes"])
    assert Rows(["a", "b"], None, [1, 0], "y.csv", [5, 6]).digest(["yes", "no"]) == same, "classes by their names"
    others = [
        rows.digest(["no", "maybe"]),
        rows.pick([1, 0]).digest(["no", "yes"]),
        rows.pick([0]).digest(["no", "yes"]),
        Rows(["a", "b"], ["", "c"], [0, 1], "x.csv", [1, 2]).digest(["no", "yes"]),
        Rows(["a", "b"], None, [0, 0], "x.csv", [1, 2], targets=["x", "y"]).digest([]),
        Rows(["a", "b"], None, [0, 1], "x.csv", [1, 2], sets=[(0, 1), ()]).digest(["no", "yes"]),
    ]
    assert len({same, *others}) == 7


def test_a_model_alone_needs_data_named(home: Path) -> None:
    with pytest.raises(ValueError, match=r"is a model without its run folder, .* name the data to judge it on"):
        find_data(EvaluateConfig(run="model"), None, settings(), LABELS)
    config = EvaluateConfig(run="model", data=run_data(path=str(home.parent / "data")))
    assert find_data(config, None, settings(), LABELS).rows.texts == [text for text, _ in rows_of("test")]


def test_a_single_file_is_judged_whole_and_said_to_be(home: Path, tmp_path: Path) -> None:
    def found(path: Path, split: str) -> tuple[str, str, int]:
        config = EvaluateConfig(run="model", split=split, data=run_data(path=str(path)))
        task = find_data(config, None, settings(), LABELS)
        return task.name, task.split, len(task.rows)

    for split in ("train", "test"):
        assert found(written(tmp_path / "new.csv", rows_of("new", 5)), split) == ("new", "all", 5)
        assert found(tmp_path / "data", split) == ("data", split, 12)
    written(tmp_path / "alone" / "rows.csv", rows_of("new", 7))
    assert found(tmp_path / "alone", "validation") == ("alone", "all", 7)


def test_a_file_is_read_in_the_columns_of_training_unless_typed(tmp_path: Path) -> None:
    path = written(tmp_path / "new.csv", [("good one", "bad one", "good")], ("review", "other", "stars"))

    def read(columns: dict[str, str], **typed: Any) -> list[str]:
        config = EvaluateConfig(run="model", data=run_data(path=str(path), **typed))
        return find_data(config, None, settings(**columns), LABELS).rows.texts

    assert read({"text": "review", "label": "stars"}) == ["good one"]
    assert read({"text": "review", "label": "stars"}, text="other") == ["bad one"]
    assert read({}, text="review", label="stars") == ["good one"]
    with pytest.raises(ValueError, match="has no column"):
        read({})


def test_a_column_that_is_typed_wins_also_where_its_name_is_the_usual_one(tmp_path: Path) -> None:
    """`data.label=label` of a model that was trained on the column `stars`, which the file has, too."""
    path = written(tmp_path / "new.csv", [("a", "good", "b", "bad")], ("text", "label", "review", "stars"))
    of_training = settings(text="review", label="stars")

    def read(*words: str) -> tuple[str, str]:
        config = compose("evaluate", [f"run={tmp_path}", f"data.path={path}", *words])
        rows = find_data(config, None, of_training, LABELS).rows
        return rows.texts[0], LABELS[rows.labels[0]]

    assert read() == ("b", "bad")
    assert read("data.label=label") == ("b", "good")
    assert read("data.text=text") == ("a", "bad")
    assert read("data.text=text", "data.label=label") == ("a", "good")


@pytest.mark.parametrize("label", ["label", "labels"])
def test_a_file_without_the_columns_of_training_is_read_in_the_usual_ones(tmp_path: Path, label: str) -> None:
    path = written(tmp_path / "n.csv", [("good one", "x", "good")], ("text", "other", label))

    def read(**typed: Any) -> list[str]:
        config = EvaluateConfig(run="model", data=run_data(path=str(path), **typed))
        return find_data(config, None, settings(text="review", label="stars"), LABELS).rows.texts

    assert read() == read(text="text", label="label") == ["good one"]
    with pytest.raises(ValueError, match=r"has no column 'typo' \(data.text\)"):
        read(text="typo")


def test_results_of_other_data_are_never_written_over(home: Path, tmp_path: Path) -> None:
    def folder(file: str, **typed: Any) -> str:
        """Where the results go, which are then there."""
        if file:
            written(tmp_path / file, rows_of("new", 5))
            typed = {"path": str(tmp_path / file), **typed}
        config = EvaluateConfig(run=str(home), data=run_data(**typed))
        task = find_data(config, home, settings(), LABELS)
        place = home / "evaluate" / task.folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "metrics.json").write_text(json.dumps(task.about))
        assert results_name(config, home, settings()) == task.folder
        return task.folder

    first = [folder("jan/reviews.csv"), folder("r.2023.csv"), folder("r.2024.csv"), folder("")]
    assert first == ["reviews-all", "r.2023-all", "r.2024-all", "data-test"]
    others = [folder("feb/reviews.csv"), folder("jan/reviews.csv", rows=3)]
    assert all(re.fullmatch(r"reviews-all-[0-9a-f]{8}", one) for one in others)
    assert len({*first, *others}) == 6
    assert [folder("jan/reviews.csv"), folder("r.2023.csv"), folder("r.2024.csv"), folder("")] == first
    assert [folder("feb/reviews.csv"), folder("jan/reviews.csv", rows=3)] == others
    assert folder("", path=str(tmp_path / "data"), split_seed=1).startswith("data-test-")
    (home / "evaluate" / "data-test" / "metrics.json").write_text('{"digest": "01234567"}')
    assert folder("") == "data-test-own"
    (home / "evaluate" / "reviews-all" / "metrics.json").write_text("of old")
    assert folder("jan/reviews.csv") not in {*first, *others}


def test_names_of_a_preset_give_way_to_ours(tmp_path: Path) -> None:
    path = written(tmp_path / "new.csv", [("ours", "theirs", "good")], ("text", "sentence", "label"))
    config = EvaluateConfig(run="model", data=run_data(path=str(path)))
    for preset, expected in ((True, "ours"), (False, "theirs")):
        columns = {"text": "sentence", "preset": preset}
        assert find_data(config, None, settings(**columns), LABELS).rows.texts == [expected]


def test_single_texts_and_pairs_do_not_mix(tmp_path: Path) -> None:
    both = written(tmp_path / "both.csv", [("a", "b", "good")], ("text", "text_pair", "label"))
    one = written(tmp_path / "one.csv", [("a", "good")])

    def pairs(path: Path, model_takes_pairs: bool) -> list[str] | None:
        config = EvaluateConfig(run="model", data=run_data(path=str(path)))
        return find_data(config, None, settings(model_takes_pairs), LABELS).rows.pairs

    assert pairs(both, True) == ["b"]
    assert pairs(both, False) is None
    with pytest.raises(ValueError, match=r"one.csv holds single texts, but the model takes pairs: name the column"):
        pairs(one, True)


def test_labels_that_do_not_match_are_listed(tmp_path: Path) -> None:
    path = written(tmp_path / "new.csv", [("a", "positive"), ("b", "negative")])
    config = EvaluateConfig(run="model", data=run_data(path=str(path)))
    with pytest.raises(ValueError, match=r"negative, positive.*bad, good, so-so"):
        find_data(config, None, settings(), LABELS)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (DataConfig(), "demo"),
        (DataConfig(source="hub", hub="stanfordnlp/imdb"), "imdb"),
        (run_data(path="/x/reviews v2.csv.gz"), "reviews-v2"),
        (run_data(path="/x/emotion/test.csv"), "emotion-test"),
        (run_data(path="/x/../??"), "data"),
        (run_data(path="/"), "data"),
    ],
)
def test_data_has_a_name_fit_for_a_folder(data: DataConfig, name: str) -> None:
    assert data_name(data) == name


def test_a_preset_names_its_own_columns() -> None:
    typed = DataConfig(source="hub", hub="glue", text="sentence", text_pair="other")
    columns = ColumnNames(text="review")
    pairs = Settings(vocab_size=9, n_classes=2, pairs=True, columns=columns)
    assert with_columns(typed, pairs) == typed
    assert with_columns(typed, replace(pairs, pairs=False)).text_pair == ""
