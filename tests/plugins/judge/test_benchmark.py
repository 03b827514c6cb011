"""benchmarks/outliers.py: its AUROC against another's, and a small run of all of it."""

import json
from pathlib import Path

import numpy as np
import outliers
import pytest
from sklearn.metrics import roc_auc_score

WORDS = {  # of sets that have none in common
    "known": ("fine weather today", "sunny and warm", "rain and wind", "snow on hills"),
    "other": ("loan refused twice", "card blocked abroad", "transfer is late", "bank closes early"),
}


def write(folder: Path, name: str, splits: tuple[str, ...], n: int = 120) -> None:
    (folder / name).mkdir()
    for split in splits:
        rows = [f"{WORDS[name][at % 4]} {split} {at},{('low', 'high')[at % 4 < 2]}" for at in range(n)]
        (folder / name / f"{split}.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")


def test_auroc_is_scikit_learns_and_its_spread_that_of_its_placements() -> None:
    random = np.random.default_rng(0)
    like, unlike = random.normal(size=80).round(1), random.normal(1, size=50).round(1)  # with ties
    found = outliers.auroc(like, unlike)
    truth = [0] * 80 + [1] * 50
    assert found["value"] == pytest.approx(roc_auc_score(truth, np.concatenate([like, unlike])))
    above = (unlike[:, None] > like) + 0.5 * (unlike[:, None] == like)
    spread = np.sqrt(above.mean(1).var(ddof=1) / 50 + above.mean(0).var(ddof=1) / 80)
    assert (found["high"] - found["low"]) / 2 == pytest.approx(1.96 * spread, rel=1e-3)
    assert outliers.auroc(like, like + 9) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_texts_are_evenly_spread_over_a_split_or_over_train(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MANYHEADS_DATA", str(tmp_path))
    write(tmp_path, "known", ("train", "test"))
    first, *_, last = texts = outliers.texts_of("known", "test", 7)
    assert (len(texts), first.split()[-1], last.split()[-1]) == (7, "0", "119")
    assert outliers.texts_of("known", "validation", 7)[0].split()[-2:] == ["train", "0"]


@pytest.mark.slow
def test_a_small_run_writes_the_figures_of_the_real_one(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("MANYHEADS_DATA", str(tmp_path))
    monkeypatch.setenv("KEEP", str(tmp_path / "runs"))
    monkeypatch.setattr(outliers, "KNOWN", ("known",))
    monkeypatch.setattr(outliers, "OTHERS", ("known", "other"))
    for name in WORDS:
        write(tmp_path, name, ("train", "validation", "test"))
    outliers.main(str(tmp_path / "found.json"), "validation", "test")
    found = json.loads((tmp_path / "found.json").read_text())
    real = json.loads(Path(outliers.__file__).with_suffix(".json").read_text())
    assert found.keys() == real.keys()
    for split, of_known in found["splits"].items():
        mine, theirs = of_known["known"], real["splits"][split]["emotion"]
        assert mine.keys() == theirs.keys()
        assert mine["means"].keys() == theirs["means"].keys()
        assert mine["others"]["other"].keys() == theirs["others"]["sst2"].keys()
        assert mine["others"]["other"]["auroc"]["score"]["value"] > 0.9
    assert "test: known against other: score" in capsys.readouterr().out
