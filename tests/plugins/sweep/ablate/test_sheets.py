"""The tables of a record made by hand, figure by figure."""

import statistics
from dataclasses import replace

import pytest
from scipy.stats import binomtest

from manyheads.plugins.sweep.tables import sheet_of_set, sheet_over_sets, sheets
from manyheads.terminal import Sheet, print_sheet


def line(sheet, row):
    return dict(zip(sheet.columns, next(cells for cells in sheet.lines if cells[0] == row), strict=True))


def test_the_table_of_one_set(record):
    sheet = sheet_of_set(record, "cats")
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
    p = float(line(sheet_of_set(record, "cats"), "cosine")["p"])
    assert p == pytest.approx(binomtest(3, 3).pvalue, abs=5e-4)
    assert line(sheet_of_set(record, "cats"), "cosine")["sd"] == ""


def test_a_row_that_is_not_finished_has_no_p_and_says_so(record):
    del record.at("cats", "cosine").runs["1"]
    cells = line(sheet_of_set(record, "cats"), "cosine")
    assert (cells["p"], cells["remarks"], cells["to first"]) == ("", "1 of 2 seeds", "+30.00")
    record.at("cats", "cosine").runs.clear()
    cells = line(sheet_of_set(record, "cats"), "cosine")
    assert (cells["accuracy"], cells["p"], cells["remarks"], cells["to first"]) == ("", "", "0 of 2 seeds", "")


def test_runs_that_were_cut_or_diverged_are_told(record):
    runs = record.at("cats", "cosine").runs
    runs["0"] = replace(runs["0"], stopped=True, steps=7)
    runs["1"] = replace(runs["1"], diverged=True)
    remarks = line(sheet_of_set(record, "cats"), "cosine")["remarks"]
    assert remarks == "1 stopped by the limit, after 7 steps, 1 diverged"


def test_runs_of_another_machine_are_told(record):
    assert sheet_of_set(record, "cats").notes[-1] == "Speed: a chip, 1 thread, cpu, torch 2.13."
    runs = record.at("cats", "cosine").runs
    runs["1"] = replace(runs["1"], machine="another chip, 4 threads, cpu, torch 2.14")
    sheet = sheet_of_set(record, "cats")
    assert sheet.notes[-1] == (
        "Runs of 2 machines or versions, whose tokens/s do not compare: a chip, 1 thread, cpu, torch 2.13; "
        "another chip, 4 threads, cpu, torch 2.14."
    )


def test_d_model_is_shown_where_it_moves(record):
    assert "d_model" not in sheet_of_set(record, "cats").columns
    record.at("cats", "cosine").width["d_model"] = 30
    assert line(sheet_of_set(record, "cats"), "cosine")["d_model"] == "30"


def test_over_several_sets_runs_are_the_units(record):
    record.sets.append("dogs")
    record.n_rows["dogs"] = 10
    assert len(sheets(replace(record, sets=["cats"]))) == 1
    record.measured += [replace(one, set="dogs") for one in record.measured]
    assert [sheet.title.partition(":")[0] for sheet in sheets(record)] == ["cats", "dogs", "all sets"]
    first, other = (line(sheet_over_sets(record), row) for row in record.rows)
    assert (first["to first"], first["p"]) == ("", "")
    assert (other["to first"], other["p"]) == ("+30.00", f"{2 / 2**4:.3f}")


def test_a_set_without_runs_has_no_table_yet(record):
    for one in record.measured:
        one.runs.clear()
    assert sheets(record) == []


def test_a_table_is_whole_on_any_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    figures = [f"{n:,}" for n in range(1_000_000, 1_000_012)]
    print_sheet(Sheet("wide", [f"figure {n}" for n in range(12)], [figures], ["A note."]))
    out = capsys.readouterr().out
    assert all(figure in out for figure in figures)
    assert "…" not in out
