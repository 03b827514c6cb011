"""The tables of a record made by hand, figure by figure."""

import csv
import json
import statistics
from dataclasses import asdict, replace

import pytest
from scipy import stats
from scipy.stats import binomtest

from manyheads import plugin
from manyheads.cli.main import main
from manyheads.evaluation.intervals import share_interval
from manyheads.plugins.sweep.tables import result_tables, sheets, table_over_sets
from manyheads.terminal import Sheet, print_sheet


def line(sheet, row):
    return dict(zip(sheet.columns, next(cells for cells in sheet.lines if cells[0] == row), strict=True))


def test_the_table_of_one_set(record):
    sheet = sheets(record)[0]
    assert sheet.title == "cats: model.score, equal parameters"
    first, other = line(sheet, "dot"), line(sheet, "cosine")
    assert first == {
        "score": "dot",
        "d_ff": "64",
        "off by": "+0.00%",
        "parameters": "1,000",
        "FLOPs/token": "50,000",
        "accuracy": "0.5500",
        "sd": f"{statistics.stdev([0.5, 0.6]):.4f}",
        "to first": "",
        "p": "",
        "tokens/s": "375",
    }
    assert (other["d_ff"], other["off by"], other["parameters"]) == ("62", "-0.20%", "998")
    assert (other["accuracy"], other["to first"]) == ("0.8500", "+30.00")
    # rows 6, 7, 8 are gained by both seeds or one: differences 1, 2, 2, 1 of seeds, all gains
    assert other["p"] == f"{2 / 2**4:.3f}"


def test_p_of_one_seed_is_the_sign_test(record):
    record.seeds = [0]
    p = float(line(sheets(record)[0], "cosine")["p"])
    assert p == pytest.approx(binomtest(3, 3).pvalue, abs=5e-4)
    assert line(sheets(record)[0], "cosine")["sd"] == ""


def test_a_row_that_is_not_finished_has_no_p_and_says_so(record):
    del record.at("cats", "cosine").runs["1"]
    cells = line(sheets(record)[0], "cosine")
    assert (cells["p"], cells["remarks"], cells["to first"]) == ("", "1 of 2 seeds", "+30.00")
    record.at("cats", "cosine").runs.clear()
    cells = line(sheets(record)[0], "cosine")
    assert (cells["accuracy"], cells["p"], cells["remarks"], cells["to first"]) == ("", "", "0 of 2 seeds", "")


def test_runs_that_were_cut_or_diverged_are_told(record):
    runs = record.at("cats", "cosine").runs
    runs["0"] = replace(runs["0"], stopped=True, steps=7)
    runs["1"] = replace(runs["1"], diverged=True)
    remarks = line(sheets(record)[0], "cosine")["remarks"]
    assert remarks == "1 stopped by the limit, after 7 steps, 1 diverged"


def test_runs_of_another_machine_are_told(record):
    assert sheets(record)[0].notes[-1] == "Speed: a chip, 1 thread, cpu, torch 2.13."
    runs = record.at("cats", "cosine").runs
    runs["1"] = replace(runs["1"], machine="another chip, 4 threads, cpu, torch 2.14")
    sheet = sheets(record)[0]
    assert sheet.notes[-1] == (
        "Runs of 2 machines or versions, whose tokens/s do not compare: a chip, 1 thread, cpu, torch 2.13; "
        "another chip, 4 threads, cpu, torch 2.14."
    )


def test_d_model_is_shown_where_it_moves(record):
    assert "d_model" not in sheets(record)[0].columns
    record.at("cats", "cosine").width["d_model"] = 30
    assert line(sheets(record)[0], "cosine")["d_model"] == "30"


def test_over_several_sets_runs_are_the_units(record):
    record.sets.append("dogs")
    record.n_rows["dogs"] = 10
    assert len(sheets(replace(record, sets=["cats"]))) == 1
    record.measured += [replace(one, set="dogs") for one in record.measured]
    assert [sheet.title.partition(":")[0] for sheet in sheets(record)] == ["cats", "dogs", "all sets"]
    first, other = (line(table_over_sets(record).as_sheet(), row) for row in record.rows)
    assert (first["to first"], first["p"]) == ("", "")
    assert (other["to first"], other["p"]) == ("+30.00", f"{2 / 2**4:.3f}")


def test_a_set_without_runs_has_no_table_yet(record):
    for one in record.measured:
        one.runs.clear()
    assert sheets(record) == []
    assert result_tables(asdict(record)) == []


def test_in_a_file_an_accuracy_has_an_interval(record):
    (table,) = result_tables(json.loads(json.dumps(asdict(record))))
    assert table.notes[-1].startswith("In brackets: 95 % intervals")
    (sheet,) = sheets(record)
    assert [*table.columns] == sheet.columns
    first, other = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    mean, deviation = 0.85, statistics.stdev([0.8, 0.9])
    low, high = stats.t.interval(0.95, 1, mean, deviation / 2**0.5)
    found = other["accuracy"]
    assert (found.value, found.low, found.high) == pytest.approx((mean, max(low, 0), min(high, 1)), abs=1e-6)
    assert (other["sd"], other["to first"], other["p"]) == pytest.approx((deviation, 30.0, 2 / 2**4))
    assert (first["to first"], first["p"], first["parameters"]) == (None, None, 1000)
    assert table.bars == "95 % intervals of the mean over 2 seeds"
    record.seeds = [0]
    (table,) = result_tables(asdict(record))
    assert dict(zip(table.columns, table.rows[0], strict=True))["accuracy"] == share_interval(5, 10)
    assert table.bars == "95 % intervals over the rows"


@pytest.mark.skipif(".csv" not in plugin.names("writer"), reason="no plugin writes such files")
def test_a_results_file_is_reported(record, tmp_path, capsys):
    record.write(tmp_path / "scores.json")
    assert main(["report", f"run={tmp_path}/scores.json", f"output={tmp_path}/scores.csv"]) == 0
    with (tmp_path / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["score"], float(row["accuracy"])) for row in rows] == [("dot", 0.55), ("cosine", pytest.approx(0.85))]


def test_a_table_is_whole_on_any_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    figures = [f"{n:,}" for n in range(1_000_000, 1_000_012)]
    print_sheet(Sheet("wide", [f"parameters {n}" for n in range(12)], [figures], ["A note."]))
    out = capsys.readouterr().out
    assert all(figure in out for figure in figures)
    assert "…" not in out
