"""Every dataset preset is a valid `DataConfig` that lists only what differs from the defaults."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import yaml

from manyheads.config import DataConfig, OnBadRow

PRESETS = sorted((Path(__file__).parents[3] / "conf" / "data").glob("*.yaml"))
DEFAULTS = {one.name: one.default for one in fields(DataConfig) if one.default is not MISSING}


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_lists_what_differs(path):
    values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    source = values.pop("source", "run")
    if "on_bad_row" in values:
        values["on_bad_row"] = OnBadRow[values["on_bad_row"]]
    assert set(values) <= set(DEFAULTS)
    assert all(value != DEFAULTS[name] for name, value in values.items())
    if values:
        made = DataConfig(source=source, **values)
        assert made.hub
        assert "Not run against the hub." in path.read_text(encoding="utf-8").splitlines()[1]


def test_the_usual_datasets_are_there():
    assert {path.stem for path in PRESETS} >= {
        *("demo", "files", "hub", "ag_news", "imdb", "sst2", "emotion", "trec", "banking77", "snips", "sick", "smsa"),
        *("dbpedia", "yelp", "newsgroups20", "mrpc", "rte", "qnli", "qqp", "mnli", "goemotions"),
    }
