"""Finished runs listed, compared and told by what they left on disk: the verbs `runs` and `report`."""

import csv
import io
import json
import os
import re
import shutil
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from manyheads.cli.main import main
from manyheads.config import DataConfig, ModelConfig, RunConfig
from manyheads.config.required import COMPARED, conditions_of
from manyheads.runs import listing as module
from manyheads.runs.config_file import save_run
from manyheads.runs.finished import read_finished
from manyheads.runs.listing import find_runs, holds, run_folders
from manyheads.runs.report import markdown, tables_of_run
from manyheads.runs.summary import Interval, Summary, read_summary


def around(value: float) -> Interval:
    return Interval(value, max(value - 0.05, 0.0), min(value + 0.05, 1.0))


def make_summary(folder: Path, accuracy: float, **typed: Any) -> Summary:
    own = {"accuracy": around(accuracy), "macro_f1": around(accuracy / 2)}
    values: dict[str, Any] = {
        "output": str(folder),
        "parameters": 1234,
        "epochs": 3,
        "steps": 40,
        "seconds": 1.25,
        "wall_seconds": 9.5,
        "real_tokens_per_s": 56789.4,
        "padding_share": 0.05,
        "truncated_share": 0.0,
        "precision": "bf16-mixed",
        "rows": {"train": 100, "validation": 20, "test": 30},
        "best": {"metric": "accuracy", "value": 0.5, "epoch": 2, "step": 20},
        "train": {"accuracy": 0.75},
        "validation": {name: around(one.value / 2) for name, one in own.items()},
        "test": own,
        "judged_on": "test",
        "baselines": {"linear model": {"accuracy": around(0.25), "macro_f1": around(0.2)}},
        "leads": {"linear model": {"accuracy": Interval(accuracy - 0.25, -0.1, 0.9)}},
        "versions": {"torch": "2"},
        "warnings": ["few rows: test has 30 rows"],
    }
    return Summary(**(values | typed))


def make_run(folder: Path, accuracy: float = 0.5, run: RunConfig | None = None, **typed: Any) -> Summary:
    """A run folder without its model."""
    folder.mkdir(parents=True)
    save_run(run or RunConfig(), folder / "config.yaml")
    summary = make_summary(folder, accuracy, **typed)
    summary.write(folder / "summary.json")
    (folder / "report.html").write_text("<!doctype html>caf\u00e9\n", encoding="utf-8")
    return summary


def evaluated(run: Path, name: str = "new-reviews-all", accuracy: float = 0.75) -> dict[str, Any]:
    """metrics.json of an evaluation in a run folder, as `evaluate` writes it."""
    own = {"accuracy": asdict(around(accuracy)), "macro_f1": asdict(around(0.5))}
    content = {
        **own,
        "n_rows": 1500,
        "labels": ["bad", "good"],
        "confusion": [[1, 2], [3, 4]],
        "data": "new-reviews",
        "split": "all",
        "members": {"both": own, "network": {"accuracy": asdict(around(0.7))}},
        "baselines": {"linear model": {"accuracy": asdict(around(0.6))}},
        "leads": {"linear model": {"accuracy": asdict(Interval(0.15, 0.1, 0.2))}},
        "warnings": [],
    }
    (run / "evaluate" / name).mkdir(parents=True)
    (run / "evaluate" / name / "metrics.json").write_text(json.dumps(content))
    return content


def wide(n_heads: int, path: str = "") -> RunConfig:
    data = DataConfig(source="files", path=path) if path else DataConfig()
    return RunConfig(model=ModelConfig(n_heads=n_heads), data=data)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "outputs"
    make_run(folder / "a", 0.5, wide(4))
    make_run(folder / "sweep" / "b", 0.875, wide(8, "/x/reviews.csv.gz"))
    make_run(folder / "c", 0.25, wide(8))
    (folder / "c" / "fold-1").mkdir()
    save_run(RunConfig(), folder / "c" / "fold-1" / "config.yaml")
    (folder / "begun").mkdir()
    save_run(wide(2), folder / "begun" / "config.yaml")
    (folder / "notes").mkdir()
    (folder / "notes" / "summary.json").write_text("{}")
    for at, name in enumerate(("begun", "a", "sweep/b", "c")):
        for file in (folder / name).glob("*.*"):
            os.utime(file, (86_400 * at, 86_400 * at))
    return folder


@pytest.fixture
def outputs(made: Path, tmp_path: Path) -> Path:
    """Three finished runs, one that is not, and folders that are none."""
    return shutil.copytree(made, tmp_path / "outputs")


def typed(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(line.split())
    said = capsys.readouterr()
    return code, said.out, said.err


def cells(text: str, delimiter: str = "\t") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


def test_runs_are_listed_newest_first_with_the_figures_of_their_files(outputs: Path, capsys) -> None:
    code, out, err = typed(f"runs folder={outputs}", capsys)
    assert (code, err) == (0, "")
    header, *lines = cells(out)
    assert header == ["run", "date", "data", "split", "rows", "parameters", "steps", "seconds", "accuracy"]
    assert [line[0] for line in lines] == ["c", "sweep/b", "a", "begun"]
    for name, line in zip(("c", "sweep/b", "a"), lines, strict=False):
        written = json.loads((outputs / name / "summary.json").read_text())["test"]["accuracy"]
        assert line[-1] == "{value:.4f} ({low:.3f} to {high:.3f})".format(**written)
    assert lines[1][2:-1] == ["reviews", "test", "30", "1,234", "40", "1.2"]
    assert lines[3][1:] == ["1970-01-01 00:00", "demo", *[""] * 6]


def test_what_was_measured_before_a_calibration_is_said_to_be(tmp_path: Path) -> None:
    make_run(tmp_path / "a", measured={"weighted_loss": around(0.5)})
    assert read_finished(tmp_path / "a")["warnings"] == ["few rows: test has 30 rows"]
    (tmp_path / "a" / "model").mkdir()
    (tmp_path / "a" / "model" / "calibration.json").write_text('{"method": "temperature", "digest": "0"}')
    found = read_finished(tmp_path / "a")
    assert "weighted_loss" in found["facts"]
    assert found["warnings"][-1] == "measured before calibrate changed the model: weighted_loss"


def test_a_terminal_is_shown_a_table(outputs: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = typed(f"runs folder={outputs}", capsys)
    assert "\t" not in out
    assert "4 runs" in out
    assert "sweep/b" in out


def test_csv_and_json_hold_every_figure_with_its_ends(outputs: Path, capsys) -> None:
    evaluated(outputs / "a")
    header, *lines = cells(typed(f"runs folder={outputs} format=csv sort=accuracy", capsys)[1], ",")
    assert [line[0] for line in lines] == ["c", "a", "sweep/b", "begun"]
    told = dict(zip(header, lines[1], strict=True))
    written = json.loads((outputs / "a" / "summary.json").read_text())["test"]
    for name, one in written.items():
        assert [float(told[f"{name}{end}"]) for end in ("", ".low", ".high")] == [one["value"], one["low"], one["high"]]
    assert told["model.n_heads"] == "4"
    assert "model.d_model" not in told
    found = json.loads(typed(f"runs folder={outputs} format=json sort=run", capsys)[1])
    assert [one["run"]["name"] for one in found] == ["a", "begun", "c", "sweep/b"]
    assert found[0]["figures"] == written
    assert found[1]["run"]["finished"] is False
    assert found[3]["data"] == {"name": "reviews", "split": "test", "n_rows": 30}


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("accuracy>0.3", ["sweep/b", "a"]),
        ("[accuracy>0.3,model.n_heads=8]", ["sweep/b"]),
        ("data=reviews", ["sweep/b"]),
        ("data!=reviews", ["c", "a", "begun"]),
        ("accuracy!=0.5", ["c", "sweep/b", "begun"]),
        ("validation.accuracy<=0.25", ["c", "a"]),
        ("accuracy.low>=0.45", ["sweep/b", "a"]),
        ("new-reviews-all.accuracy==0.75", ["a"]),
        ("model.bias=true,model.scale=null", ["c", "sweep/b", "a", "begun"]),
        ("date<1970-01-03", ["a", "begun"]),
        ("seconds>1,trainer.max_epochs>=30", ["c", "sweep/b", "a"]),
        ("[]", ["c", "sweep/b", "a", "begun"]),
    ],
)
def test_filters(where: str, names: list[str], outputs: Path) -> None:
    evaluated(outputs / "a")
    found, broken = find_runs(outputs, where)
    assert ([*found], broken) == (names, [])


VALUES = st.one_of(
    st.none(), st.floats(allow_nan=False), st.integers(-(10**6), 10**6), st.text("ab1.-", min_size=1, max_size=9)
)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=4), VALUES, max_size=8), st.booleans())
def test_runs_are_sorted_with_those_that_lack_the_value_last(values: dict[str, Any], down: bool) -> None:
    def fake(place: Path, *, evaluations: bool) -> dict[str, Any]:
        run = dict.fromkeys(("date", "parameters", "steps", "seconds")) | {"name": ""}
        data, value = dict.fromkeys(("name", "split", "n_rows")), values[place.name]
        held = {} if value is None else {"seed": value}
        return {"run": run, "data": data, "figures": {}, "splits": {}, "settings": held}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run_folders", lambda folder: [folder / name for name in values])
        patch.setattr(module, "read_finished", fake)
        found, broken = find_runs(Path(), sort="-seed" if down else "seed")
    assert broken == []
    assert {*found} == {*values}
    given_, missing = ([name for name in found if (values[name] is None) is lacks] for lacks in (False, True))
    assert [*found] == [*given_, *missing]
    assert missing == sorted(missing)
    for kind in (str, (int, float)):
        own = [values[name] for name in given_ if isinstance(values[name], kind)]
        assert own == sorted(own, reverse=down)
    for before, after in pairwise(given_):
        assert values[before] != values[after] or before < after


@given(VALUES.filter(lambda one: one is not None), st.floats(allow_nan=False))
def test_of_a_number_one_sign_of_three_holds(value: Any, to: float) -> None:
    said = [holds(value, sign, repr(to)) for sign in ("<", "=", ">")]
    assert said.count(True) == 1
    assert holds(value, "<=", repr(to)) == (said[0] or said[1])
    assert holds(value, "!=", repr(to)) == (not said[1])
    if not isinstance(value, str):
        assert said == [value < to, value == to, value > to]


@given(st.text())
def test_a_filter_is_understood_or_refused(where: str) -> None:
    try:
        found = conditions_of(where, "where", "where=[accuracy>0.8]")
    except ValueError as error:
        assert "is not understood" in str(error)  # noqa: PT017  others are bugs
    else:
        assert all(name and sign in COMPARED for name, sign, _ in found)


def test_two_runs_are_compared_by_settings_and_figures(outputs: Path, capsys, monkeypatch) -> None:
    evaluated(outputs / "a")
    monkeypatch.chdir(outputs)
    code, out, err = typed("runs compare a sweep/b", capsys)
    assert (code, err) == (0, "")
    assert cells(out) == [
        ["", "a", "b"],
        ["data.source", "demo", "files"],
        ["data.path", "", "/x/reviews.csv.gz"],
        ["model.n_heads", "4", "8"],
        ["test accuracy", around(0.5).words, around(0.875).words],
        ["test macro F1", around(0.25).words, around(0.4375).words],
        ["validation accuracy", around(0.25).words, around(0.4375).words],
        ["validation macro F1", around(0.125).words, around(0.2188).words],
        ["new-reviews-all accuracy", around(0.75).words, ""],
        ["new-reviews-all macro F1", around(0.5).words, ""],
    ]
    assert typed("runs runs=[a,sweep/b]", capsys) == (0, out, "")
    both = json.loads(typed("runs compare a c format=json", capsys)[1])
    assert [one["settings"]["model.n_heads"] for one in both] == [4, 8]


def test_where_a_linear_model_answers_too_the_networks_figure_is_beside_it(outputs: Path, capsys) -> None:
    both, network = ({"accuracy": around(value)} for value in (0.75, 0.625))
    members = {split: {"both": both, "network": network, "linear model": both} for split in ("validation", "test")}
    make_run(outputs / "d", 0.75, wide(2), validation=both, test=both, members=members, linear=1.0)
    header, *lines = cells(typed(f"runs folder={outputs} sort=-network.accuracy", capsys)[1])
    assert header[-3:] == ["answers", "accuracy", "accuracy, network"]
    assert [line[0] for line in lines] == ["sweep/b", "d", "a", "c", "begun"]
    assert lines[1][-3:] == ["both", around(0.75).words, around(0.625).words]
    assert lines[0][-3:] == ["network", *[around(0.875).words] * 2]
    assert lines[-1][-3:] == ["", "", ""]
    assert [*find_runs(outputs, "network.accuracy.low>0.5")[0]] == ["d", "sweep/b"]
    (line,) = csv.DictReader(io.StringIO(typed(f"runs folder={outputs} where=answers=both format=csv", capsys)[1]))
    assert (line["accuracy"], line["network.accuracy"]) == ("0.75", "0.625")
    compared = {line[0]: line[1:] for line in cells(typed(f"runs compare {outputs}/d {outputs}/a", capsys)[1])}
    assert compared["answers"] == ["both", "network"]
    for split, of_a in (("test", 0.5), ("validation", 0.25)):
        assert compared[f"{split} accuracy, network"] == [around(0.625).words, around(of_a).words]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("accuracy>80", "accuracy>80 holds for none of 4 runs, in which accuracy is from 0.25 to 0.875: "),
        ("[seed=0,data=zebra]", "data=zebra holds for none of 4 runs, in which data is demo, reviews: "),
        ("test.f1>0", "test.f1 is neither a column, a setting nor a figure of these runs: "),
        (
            "[model.n_heads=4,data=reviews]",
            "each condition holds for some of 4 runs, but no run meets all: ",
        ),
    ],
)
def test_where_no_run_is_found_it_is_said_what_there_is(where: str, said: str, outputs: Path, capsys) -> None:
    code, out, err = typed(f"runs folder={outputs} where={where} format=json", capsys)
    assert err.startswith(said)
    assert err.count("\n") == 1
    assert (code, out) in ((0, "[]\n"), (2, ""))


def test_odd_names_of_runs_are_taken_as_they_are(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lr=0.1,n=2", "it's [b]"):
        make_run(tmp_path / name)
    assert main(["runs", "compare", "lr=0.1,n=2", "it's [b]"]) == 0
    assert cells(capsys.readouterr().out)[0] == ["", "lr=0.1,n=2", "it's [b]"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("runs compare outputs/a", "is of two runs or more: write manyheads runs compare outputs/a outputs/b"),
        ("runs runs=[outputs/a]", " is one run, but two or more are compared: add another"),
        ("report run=outputs/a/config.yaml", "config.yaml holds neither a run nor an evaluation: name one that does"),
        (
            "runs compare outputs/a outputs/notes",
            "run=outputs/notes holds neither a run nor an evaluation: name one that does",
        ),
        ("runs compare outputs/a outputs/a", " names one model twice: name others"),
        ("runs outputs", "outputs has no value: for the runs in a folder write folder=outputs"),
        ("runs folder=nowhere", "folder=nowhere is not a folder: name one that holds runs"),
        (
            "runs folder=outputs sort=accurcy",
            "accurcy is neither a column, a setting nor a figure of these runs: did you mean accuracy?",
        ),
        (
            "runs folder=outputs where=model.heads=3",
            "model.heads is neither a column, a setting nor a figure of these runs: did you mean model.n_heads?",
        ),
        (
            "runs where=accuracy",
            "where=accuracy is not understood: write it as 'where=[data=reviews, accuracy>0.8]', in quotes",
        ),
        ("runs runs=[a,b] where=seed=0", "where=seed=0 does nothing with runs, which names them: remove one of them"),
        ("runs format=xml", "format=xml is not a choice: choose table, csv or json"),
        ("report", "run is empty: name a finished run, for example run=outputs/my-run"),
        ("report run=outputs/begun", "run=outputs/begun is not finished: resume its training by resume=auto"),
        ("report run=outputs/a output=outputs", "output=outputs is a folder: name a file in it"),
        (
            "runs where=steps<abc",
            "where=<abc compares the number 40 with a text: give a number, or use = or !=",
        ),
        (
            "report run=outputs/a output=none/x.md",
            "output=none/x.md cannot be written (No such file or directory): name another file",
        ),
    ],
)
def test_a_mistake_is_one_sentence(line: str, sentence: str, outputs: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(outputs.parent)
    code, out, err = typed(line, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith(f"{sentence}\n")


def test_a_folder_without_runs_is_an_empty_table(tmp_path: Path, capsys) -> None:
    assert typed(f"runs folder={tmp_path} sort=accuracy format=json", capsys) == (0, "[]\n", "")


HOSTILE = {
    "broken": ("config.yaml", "model: [\n"),
    "alias": ("config.yaml", "a: &a [1]\nb: *a\n"),
    "code": ("config.yaml", "model:\n  _target_: os.system\n"),
    "no_number": ("config.yaml", "trainer:\n  gradient_clip_val: .nan\n"),
    "bytes": ("config.yaml", b"\xff\xfe\x00"),
    "no_json": ("summary.json", "{"),
    "a_list": ("summary.json", "[]"),
    "empty": ("summary.json", "{}"),
    "nested": ("summary.json", "[" * 100_000),
    "digits": ("summary.json", '{"parameters": ' + "9" * 5000 + "}"),
}


def changed(**typed: Any) -> dict[str, Any]:
    return asdict(make_summary(Path("x"), 0.5)) | typed


HOSTILE_SUMMARIES = [
    changed(test={"accuracy": {"value": float("nan"), "low": 0.0, "high": 1.0}}),
    changed(test={"accuracy": {"value": float("inf"), "low": 0.0, "high": 1.0}}),
    changed(test={"accuracy": {"value": "0.5", "low": 0.0, "high": 1.0}}),
    changed(test={"accuracy": 0.5}),
    changed(test={}),
    changed(judged_on="write"),
    changed(judged_on=[]),
    changed(parameters=10**400),
    changed(parameters=True),
    changed(rows={"test": "30"}),
    changed(best={"metric": "accuracy"}),
    changed(best={"metric": 3, "value": 0.5, "epoch": 1}),
    changed(leads={"other": {"accuracy": asdict(around(0.5))}}),
    changed(leads={"linear model": {}}),
    changed(warnings=[{}]),
]


def test_damaged_runs_are_counted_and_left_out(outputs: Path, capsys) -> None:
    for name, (file, content) in HOSTILE.items():
        make_run(outputs / name)
        (outputs / name / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    for at, content in enumerate(HOSTILE_SUMMARIES):
        make_run(outputs / f"summary-{at}")
        (outputs / f"summary-{at}" / "summary.json").write_text(json.dumps(content))
    make_run(outputs / "link")
    (outputs / "link" / "config.yaml").unlink()
    (outputs / "link" / "config.yaml").symlink_to("/etc/passwd")
    n_damaged = len(HOSTILE) + len(HOSTILE_SUMMARIES) + 1
    code, out, err = typed(f"runs folder={outputs}", capsys)
    assert code == 0
    assert [line[0] for line in cells(out)] == ["run", "c", "sweep/b", "a", "begun"]
    assert err.startswith(f"{n_damaged} unreadable, left out: ")
    assert err.endswith(f"; and {n_damaged - 3} more\n")
    assert err.count("\n") == 1
    assert "root:" not in err
    for name in [*HOSTILE, *(f"summary-{at}" for at in range(len(HOSTILE_SUMMARIES))), "link"]:
        code, out, err = typed(f"report run={outputs / name}", capsys)
        assert (code, out, err.count("\n"), "Traceback" in err) == (2, "", 1, False)


def test_a_huge_file_is_not_read(outputs: Path, capsys) -> None:
    for name, file, n_bytes in (("a", "summary.json", 2**29), ("c", "config.yaml", 2**21)):
        with (outputs / name / file).open("r+b") as opened:
            opened.truncate(n_bytes)
    code, out, err = typed(f"runs folder={outputs}", capsys)
    assert (code, [line[0] for line in cells(out)]) == (0, ["run", "sweep/b", "begun"])
    assert err.startswith("2 unreadable, left out: ")
    assert "is larger than" in err


def test_links_are_not_followed(outputs: Path) -> None:
    (outputs / "loop").symlink_to(outputs, target_is_directory=True)
    (outputs / "sweep" / "again").symlink_to(outputs / "a", target_is_directory=True)
    (outputs / "self").symlink_to("self")
    assert len([*run_folders(outputs)]) == 4


def test_names_never_steer_the_terminal(tmp_path: Path, capsys, monkeypatch) -> None:
    name = "x\x1b[2J\n\u202e\x9b|[b]"
    make_run(tmp_path / "runs" / name, warnings=["\x1b]0;title\x07"])
    make_run(tmp_path / "runs" / "y" / "z")
    (tmp_path / "runs" / "y" / "z" / "config.yaml").write_text("\x1b: [")
    folder = tmp_path / "runs"
    for form in ("table", "csv", "json"):
        for terminal in (False, True):
            monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
            assert main(["runs", f"folder={folder}", f"format={form}"]) == 0
            said = capsys.readouterr()
            unstyled = re.sub(r"\x1b\[[\d;]*m", "", said.out)  # of the table itself
            assert all(one.isprintable() or one in "\n\t" for one in unstyled + said.err)
            assert said.err.count("\n") == 1
    for form in ("md", "json"):
        assert main(["report", f"run={folder / name}", f"format={form}"]) == 0
        out = capsys.readouterr().out
        assert all(one.isprintable() or one == "\n" for one in out)


def test_the_report_of_a_run_has_its_figures_and_what_differs(outputs: Path, capsys) -> None:
    written = json.loads((outputs / "a" / "summary.json").read_text())
    content = evaluated(outputs / "a")
    code, out, err = typed(f"report run={outputs / 'sweep' / 'b'}", capsys)
    assert (code, err) == (0, "")
    tables = read_tables(out)
    assert tables[0] == [
        ["model", "accuracy", "macro F1"],
        ["network", around(0.875).words, around(0.4375).words],
        ["linear model", around(0.25).words, around(0.2).words],
    ]
    assert ["trained", "3 epochs, 40 steps, 1.2 s"] in tables[1]
    assert tables[2][1:] == [
        ["data.source", "files", "demo"],
        ["data.path", "/x/reviews.csv.gz", ""],
        ["model.n_heads", "8", "4"],
    ]
    assert "## reviews, test, 30 rows\n" in out
    assert "In accuracy on test the model is not significantly different from the linear model: +62.5 points" in out
    assert "> few rows: test has 30 rows\n" in out
    found = json.loads(typed(f"report run={outputs / 'a'} format=json", capsys)[1])
    assert found["version"] == 1
    assert found["figures"] == written["test"]
    assert found["baselines"] == written["baselines"]
    assert found["splits"]["new-reviews-all"] == {name: content[name] for name in ("accuracy", "macro_f1")}
    assert found["run"]["parameters"] == written["parameters"]
    assert (found["settings"]["model.n_heads"], found["changed"]) == (4, [])


def test_the_report_of_an_evaluation(outputs: Path, capsys) -> None:
    content = evaluated(outputs / "c")
    folder = outputs / "c" / "evaluate" / "new-reviews-all"
    found = json.loads(typed(f"report run={folder} format=json", capsys)[1])
    assert found["data"] == {"name": "new-reviews", "split": "all", "n_rows": 1500}
    assert found["figures"] == {name: content[name] for name in ("accuracy", "macro_f1")}
    assert found["facts"]["lead"] == (
        "in accuracy on these rows the model beats the linear model by 15.0 points (95 % interval 10.0 to 20.0)"
    )
    assert {key: found[key] for key in ("members", "baselines", "leads")} == {
        key: content[key] for key in ("members", "baselines", "leads")
    }
    assert (found["run"]["parameters"], found["changed"]) == (1234, ["model.n_heads"])
    out = typed(f"report run={folder}", capsys)[1]
    assert [row[0] for row in read_tables(out)[0]] == ["model", "both", "network", "linear model"]
    assert "In accuracy on these rows the model beats the linear model by 15.0 points" in out
    alone = outputs / "elsewhere"
    folder.rename(alone)
    assert json.loads(typed(f"report run={alone} format=json", capsys)[1])["settings"] == {}
    (alone / "metrics.json").write_text(json.dumps(content | {"members": {"both": 3}}))
    assert typed(f"report run={alone}", capsys)[0] == 2


def test_html_is_the_page_that_is_there_and_files_are_replaced(outputs: Path, tmp_path: Path, capsys) -> None:
    target = tmp_path / "r.html"
    target.write_text("before")
    assert typed(f"report run={outputs / 'a'} format=html output={target}", capsys) == (0, "", "")
    assert target.read_bytes() == (outputs / "a" / "report.html").read_bytes()
    assert typed(f"report run={outputs / 'a'} format=html", capsys)[1] == "<!doctype html>caf\u00e9\n"
    (outputs / "a" / "report.html").unlink()
    code, _, err = typed(f"report run={outputs / 'a'} format=html", capsys)
    assert (code, err) == (2, f"{outputs / 'a' / 'report.html'} does not exist: choose format=md or format=json\n")


def test_runs_are_a_table_in_a_file(outputs: Path, tmp_path: Path, capsys) -> None:
    target = tmp_path / "runs.md"
    assert typed(f"runs folder={outputs} output={target}", capsys) == (0, f"{target}: runs\n", "")
    ((header, *lines),) = read_tables(target.read_text())
    assert [header, *lines] == cells(typed(f"runs folder={outputs}", capsys)[1])
    csv_file = tmp_path / "runs.csv"
    assert typed(f"runs folder={outputs} output={csv_file}", capsys) == (0, "", "")
    assert csv_file.read_text() == typed(f"runs folder={outputs} format=csv", capsys)[1]
    both = f"runs compare {outputs / 'a'} {outputs / 'c'}"
    assert typed(f"{both} output={target}", capsys)[0] == 0
    ((header, *lines),) = read_tables(target.read_text())
    assert [header, *lines] == cells(typed(both, capsys)[1])
    for words, said in (
        (f"output={tmp_path}/x.txt", f"output={tmp_path}/x.txt is no file of tables: choose a name that ends in .md"),
        (f"output={target} format=json", f"format=json does nothing with output={target}"),
    ):
        code, out, err = typed(f"runs folder={outputs} {words}", capsys)
        assert (code, out, err[: len(said)]) == (2, "", said)


def test_tables_of_an_evaluation(outputs: Path, tmp_path: Path, capsys) -> None:
    content = evaluated(outputs / "a")
    metrics = outputs / "a" / "evaluate" / "new-reviews-all" / "metrics.json"
    ends = {"low": 0.8, "high": 0.9, "n_rows": 7, "confidence": 0.875, "accuracy": 0.5, "least": 0.25, "most": 0.75}
    metrics.write_text(json.dumps(content | {"reliability": [ends]}))
    figures, reliability = tables_of_run(read_finished(metrics.parent), metrics.parent)
    assert [row[0] for row in figures.rows] == ["both", "network", "linear model"]
    assert figures.rows[0][1:] == [around(0.75), around(0.5)]
    assert figures.rows[2][1:] == [around(0.6), None]
    assert reliability.rows == [[0.875, 7, Interval(0.5, 0.25, 0.75)]]
    target = tmp_path / "x.md"
    assert typed(f"report run={metrics.parent} of=reliability output={target}", capsys)[0] == 0
    assert read_tables(target.read_text())[0][1] == ["0.8750", "7", "0.5000 (0.250 to 0.750)"]
    code, _, err = typed(f"report run={outputs / 'a'} of=reliability output={target}", capsys)
    assert (code, err) == (2, "of=reliability is no table of these results: choose figures\n")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).map(str.strip).filter(bool)


def read_tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, as GitHub's Markdown shows them."""
    tables: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and tables and token.level > 3:
            assert all(one.type == "text" or one.type == "text_special" for one in token.children or ()), token.children
            tables[-1][-1].append("".join(one.content for one in token.children or ()))
    return tables


@given(TEXTS)
def test_what_stands_in_a_cell_is_text_whatever_it_holds(text: str) -> None:
    found: dict[str, Any] = {
        "run": {"name": text, "folder": text, "date": "x"},
        "data": {"name": text, "split": "test", "n_rows": 3},
        "figures": {"accuracy": around(0.5)},
        "members": {text: {"accuracy": around(0.5)}},
        **{"baselines": {}, "leads": {}, "facts": {}, "warnings": [], "settings": {}, "changed": []},
    }
    (first, second) = read_tables(markdown(found))
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    assert first[1][0] == shown
    assert second[1] == ["folder", shown]


def test_a_summary_reads_back_equal(tmp_path: Path) -> None:
    summary = make_summary(tmp_path, 0.5, members={"test": {"both": {"accuracy": around(0.25)}}})
    summary.write(tmp_path / "summary.json")
    assert read_summary(tmp_path / "summary.json") == summary
    assert read_summary(tmp_path / "none.json") is None


def test_a_run_of_folds_has_the_figures_of_all_rows(outputs: Path) -> None:
    (outputs / "c" / "summary.json").unlink()
    content = evaluated(outputs / "c", "x")
    (outputs / "c" / "metrics.json").write_text(json.dumps(content))
    found = read_finished(outputs / "c")
    assert found["figures"]["accuracy"] == Interval(**content["accuracy"])
    assert found["run"]["finished"]
