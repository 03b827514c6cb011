"""Texts unlike the training: scores and p-values against numpy, the rate of false alarms by simulation, the file."""

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from manyheads.config import (
    Accelerator,
    DataConfig,
    EvaluateConfig,
    InferenceHardware,
    PredictConfig,
    RunConfig,
)
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows
from manyheads.distributed import faults
from manyheads.evaluation import logits
from manyheads.evaluation.evaluate import evaluate
from manyheads.inference import classifier
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.inference.format import open_folder
from manyheads.inference.predict import predict
from manyheads.nn import Classifier
from manyheads.plugins.judge.outliers import (
    SHRINK,
    SMOOTH,
    Outliers,
    _spread,
    fit_outliers,
    read_outliers,
    script_of,
    set_outliers,
)
from manyheads.plugins.judge.sections import OutliersConfig
from manyheads.runs.config_file import read_run, save_run

CPU = InferenceHardware(accelerator=Accelerator.cpu)
TEXTS = [
    f"{'good ' * (at % 4)}{'bad ' * (at % 3)}film {'so ' * (at % 5)}{'a the' if at % 7 else 'x'}" for at in range(90)
]


def rows(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(texts, pairs, [0] * len(texts), "x.csv", range(len(texts)))


def vectors_alone(classifier: TextClassifier, texts: list[str]) -> np.ndarray:
    """What the head is given, one text at a time."""
    seen: list[torch.Tensor] = []
    hook = classifier.network.head.register_forward_pre_hook(lambda head, given: seen.append(given[0]))
    for text in texts:
        classifier.logits([text])
    hook.remove()
    return torch.cat(seen).double().numpy()


def test_scores_are_mahalanobis_and_surprise_by_numpy(model_folder: Path) -> None:
    classifier = load(model_folder, TextClassifier)
    train, held_out, new = TEXTS[:50], TEXTS[50:], ["very awful film", "", "good good good"]
    found = fit_outliers(classifier, rows(train), rows(held_out))
    X = vectors_alone(classifier, train)
    covariance = np.cov(X.T, bias=True)
    shrunk = (1 - SHRINK) * covariance + SHRINK * np.trace(covariance) / len(covariance) * np.eye(len(covariance))

    def ids_of(text: str) -> list[int]:
        ids = classifier.tokenizer.encode(text).ids
        return ids if len(ids) <= 12 else [*ids[:11], ids[-1]]

    counts = np.bincount([one for text in train for one in ids_of(text)], minlength=15) + SMOOTH
    surprise = -np.log(counts / counts.sum())

    def parts(texts: list[str]) -> np.ndarray:
        far = vectors_alone(classifier, texts) - X.mean(0)
        distances = np.einsum("nd,de,ne->n", far, np.linalg.inv(shrunk), far)
        return np.stack([distances, [surprise[ids_of(text)].mean() for text in texts]])

    spreads = parts(train).std(1)
    score = lambda texts: (parts(texts) / spreads[:, None]).sum(0)  # noqa: E731
    np.testing.assert_allclose(found.scores_Z, np.sort(score(held_out)), rtol=1e-4)
    expected = [(1 + (score(held_out) >= one - 1e-6 * abs(one)).sum()) / 41 for one in score(new)]
    np.testing.assert_allclose(found.answers(classifier, new, None)[1], expected)


def test_an_unseen_script_is_the_strangest(model_folder: Path) -> None:
    classifier = load(model_folder, TextClassifier)
    found = fit_outliers(classifier, rows(TEXTS[:50]), rows(TEXTS[50:]))
    least, other = found.answers(classifier, ["хороший film фильм", TEXTS[1]], None)[1].tolist()
    assert least == 1 / 41 < other
    held = fit_outliers(classifier, rows(TEXTS[:50]), rows([*TEXTS[50:], "фильм", "映画"]))
    assert held.answers(classifier, ["плохой", "123 !"], None)[1][0] == 3 / 43  # of which two were as strange
    assert "none" in held.scripts


@given(alarms=st.floats(0.01, 0.5), n=st.integers(100, 400), seed=st.integers(0, 2**16))
def test_no_more_than_the_stated_share_of_like_texts_is_marked(alarms: float, n: int, seed: int) -> None:
    random, marked = np.random.default_rng(seed), []
    for _ in range(60):
        scores = torch.tensor(random.exponential(size=n + 200)).round(decimals=1)  # with ties
        none = torch.zeros(0)
        found = Outliers(none, none, none, none, frozenset(), scores[:n].sort().values)
        marked.append((found.p_values(scores[n:]) <= alarms).double().mean().item())
    spread = math.sqrt(alarms * (1 - alarms) * (1 / n + 1 / 200) / 60)
    assert np.mean(marked) <= alarms + 4 * spread


@pytest.mark.parametrize("folder", ["label_folder", "pair_folder"])
def test_labels_and_pairs_have_outliers_too(folder: str, request: pytest.FixtureRequest) -> None:
    classifier = load(request.getfixturevalue(folder), TextClassifier)
    pairs = TEXTS[::-1] if classifier.pairs else None
    found = fit_outliers(classifier, rows(TEXTS, pairs), rows(TEXTS, pairs))
    p_n = found.answers(classifier, TEXTS, pairs)[1].numpy()
    assert (p_n <= 0.1).mean() == pytest.approx(0.1, abs=0.06)
    assert found.answers(classifier, ["film"], ["любой фильм"] if pairs else None)[1][0] >= 1 / 91


@pytest.fixture
def home(model_folder: Path, tmp_path: Path) -> Path:
    """A run with its data; its own copy."""
    shutil.copytree(model_folder, tmp_path / "run")
    (tmp_path / "data").mkdir()
    for split, texts in (("train", TEXTS * 2), ("validation", TEXTS), ("test", TEXTS[:9])):
        with (tmp_path / "data" / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [("text", "label"), *((one, ["bad", "good", "so-so"][at % 3]) for at, one in enumerate(texts))]
            )
    save_run(RunConfig(data=DataConfig(path=str(tmp_path / "data"))), tmp_path / "run" / "config.yaml")
    return tmp_path / "run"


def asked(run: Path, alarms: float, **more: Any) -> PredictConfig:
    return PredictConfig(run=str(run), hardware=CPU, outliers=OutliersConfig(false_alarms=alarms), **more)


def test_predict_marks_texts_and_keeps_what_it_knows(home: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join([TEXTS[1], "хороший фильм"]))
    for name in ("a", "b"):
        assert predict(asked(home, 0.05, input=str(tmp_path / "in.txt"), output=str(tmp_path / f"{name}.jsonl"))) == 2
        (tmp_path / "data" / "train.csv").unlink(missing_ok=True)  # which is not read again
    first, second = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    assert (first["outlier"], second["outlier"], second["outlier_p"]) == (False, True, round(1 / 91, 6))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    shipped = tmp_path / "alone"
    (home / "model").rename(shipped)
    predict(asked(shipped, 0.05, input=str(tmp_path / "in.txt"), output=str(tmp_path / "c.csv")))
    with (tmp_path / "c.csv").open(newline="") as file:
        assert [one["outlier"] for one in csv.DictReader(file)] == ["false", "true"]


def test_texts_are_read_once_and_answered_as_without_marks(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    predict(asked(home, 0.05, text="a film"))  # which keeps what it knows
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    read: list[int] = []
    monkeypatch.setattr(Classifier, "read", lambda *given: read.append(1) or reads(*given))
    answers = []
    for alarms in (0.0, 0.05):
        read.clear()
        predict(asked(home, alarms, input=str(tmp_path / "in.txt"), output=str(tmp_path / f"{alarms}.jsonl")))
        answers.append([json.loads(line) for line in (tmp_path / f"{alarms}.jsonl").read_text().splitlines()])
        answers.append(len(read))
    plain, n_plain, marked, n_marked = answers
    assert n_plain == n_marked
    assert [{name: of[name] for name in ("text", "label", "probabilities")} for of in marked] == plain


def test_evaluate_reads_texts_once_and_judges_as_without_marks(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_outliers(asked(home, 0.05), open_folder(home), load(home, TextClassifier))  # which keeps what it knows
    read: list[int] = []
    monkeypatch.setattr(Classifier, "read", lambda *given: read.append(1) or reads(*given))
    found, n_read = [], []
    for alarms in (0.0, 0.05):
        read.clear()
        config = {"outliers": OutliersConfig(false_alarms=alarms), "output": str(tmp_path / f"{alarms}")}
        found.append(evaluate(EvaluateConfig(run=str(home), hardware=CPU, **config)))
        n_read.append(len(read))
    assert n_read[0] == n_read[1]
    assert found[1].pop("outliers")["validation_rows"] == 90
    assert found[1] == found[0]


def test_marks_of_an_evaluation_that_was_killed_are_those_of_a_whole_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged: dict[str, Any] = {"run": str(home), "hardware": CPU}
    judged["outliers"] = OutliersConfig(false_alarms=0.5)
    whole = evaluate(EvaluateConfig(**judged, output=str(tmp_path / "whole")))
    monkeypatch.setattr(classifier, "CHUNK", 4)
    monkeypatch.setattr(logits, "EVERY", 0.0)
    again = EvaluateConfig(**judged, output=str(tmp_path / "out"))
    with monkeypatch.context() as patch:
        patch.setenv(faults.VARIABLE, "chunk:3:fail")
        with pytest.raises(RuntimeError):
            evaluate(again)
    faults.reset_counts()
    assert evaluate(again)["outliers"] == whole["outliers"]
    assert "evaluate: resuming after 8 of " in capsys.readouterr().err


reads = Classifier.read


def test_what_is_kept_is_of_this_model_and_whole(home: Path) -> None:
    file = home / "model" / "outliers.safetensors"
    folder = load(home, TextClassifier)
    config = asked(home, 0.05)
    opened = open_folder(home)
    made = set_outliers(config, opened, folder)
    assert set_outliers(config, opened, folder).digest == made.digest
    with safe_open(file, "pt") as read:
        about = read.metadata()
    width = folder.network.head.in_features
    again = read_outliers(file, about["model"], 15, width)
    assert again is not None
    assert again.scripts == {"latin", "none"}
    assert torch.equal(again.scores_Z, made.scores_Z)
    assert read_outliers(file, "another", 15, width) is None
    tensors = load_file(file)
    narrow = {"mean": torch.zeros(3).double(), "whiten": torch.eye(3).double()}
    for wrong in ({"mean": torch.zeros(3)}, narrow):
        save_file(tensors | wrong, file, about)
        with pytest.raises(ValueError, match="is not of the sizes of its model: remove it"):
            set_outliers(config, opened, folder)
    save_file(tensors, file, about | {"scripts": "[1"})
    with pytest.raises(ValueError, match="is broken"):
        set_outliers(config, opened, folder)
    file.write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="is broken"):
        set_outliers(config, opened, folder)


def test_what_cannot_be_told_is_one_sentence(home: Path, model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs more than 90 validation rows: set 0\.01099 or more"):
        predict(asked(home, 0.01, text="a film"))
    file, opened, classifier = home / "model" / "outliers.safetensors", open_folder(home), load(home, TextClassifier)
    with safe_open(file, "pt") as read:
        about = read.metadata()
    for n in (150, 10_000, 20_000):
        save_file(load_file(file) | {"scores": torch.zeros(n).double()}, file, about)
        with pytest.raises(ValueError, match="or more") as refused:
            set_outliers(asked(home, 1e-9), opened, classifier)
        least = float(str(refused.value).split()[-3])
        assert len(set_outliers(asked(home, least), opened, classifier).scores_Z) == n
        assert least < 1.02 / n
    with pytest.raises(ValueError, match=r"is a model without its run folder, whose rows outliers\.false_alarms=0\.1"):
        predict(asked(model_folder, 0.1, text="a film"))


def test_rows_to_be_like_are_evenly_spread_among_any_number() -> None:
    class Many:
        def __len__(self) -> int:
            return 2**24 + 4

        def pick(self, at: np.ndarray) -> np.ndarray:
            return at

    at: Any = _spread(Many(), 5_000)  # type: ignore[arg-type]
    assert (len(at), at[0], at[-1]) == (5_000, 0, 2**24 + 3)


def test_scripts_are_told_by_their_letters() -> None:
    assert [script_of(one) for one in ("a film", "фильм ok", "映画作品", "12 !", "")] == [
        *("latin", "cyrillic", "cjk", "none", "none"),
    ]


def test_the_rows_that_marks_are_set_by_are_not_judged(home: Path) -> None:
    outliers = OutliersConfig(false_alarms=0.1)
    judged: dict[str, Any] = {"run": str(home), "hardware": CPU, "outliers": outliers}
    assert evaluate(EvaluateConfig(**judged))["outliers"]["validation_rows"] == 90
    with pytest.raises(ValueError, match=r"outliers\.false_alarms is set by the rows of .*validation\.csv, which are"):
        evaluate(EvaluateConfig(**judged, split="validation"))


def test_rows_of_data_that_has_changed_set_no_marks(home: Path, tmp_path: Path) -> None:
    run = read_run(home / "config.yaml")
    splits = read_rows(run, with_test=False)
    digests = {name: rows.digest(splits.labels) for name, rows in splits.by_name().items()}
    (home / "summary.json").write_text(json.dumps({"digests": digests}))
    set_outliers(asked(home, 0.05), open_folder(home), load(home, TextClassifier))
    (home / "model" / "outliers.safetensors").unlink()
    with (tmp_path / "data" / "validation.csv").open("a") as file:
        file.write("a film,good\n")
    with pytest.raises(ValueError, match=r"validation\.csv has changed since training: .* or remove outliers\.false_"):
        predict(asked(home, 0.05, text="a film"))
    assert not (home / "model" / "outliers.safetensors").exists()


def test_a_model_that_gives_no_vectors_is_refused(home: Path) -> None:
    (home / "model" / "model.safetensors").rename(home / "model" / "model.onnx")
    with pytest.raises(ValueError, match="is a graph for onnxruntime, which gives answers alone: remove it"):
        predict(asked(home, 0.1, text="a film"))
