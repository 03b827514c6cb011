"""Users' own questions to an evaluation and rules for answers, by the hooks of docs/extending.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manyheads import api
from manyheads.cli.main import main
from manyheads.plugin import unregister
from tests.conftest import LABELS

CPU = "hardware.accelerator=cpu"


@api.section("unsure.")
class Unsure:
    """Answers that are marked."""

    below: float = api.setting(0.0, "confidence below which answers are marked", ge=0.0, le=1.0)


@api.section()
class Longest:
    """A question."""

    longest: bool = api.setting(False, "say how long the longest text is")


def asked(config: Any, folder: Any) -> bool:
    if config.unsure.below == 1:
        raise ValueError("unsure.below=1 marks every answer: ask for less")
    return config.unsure.below > 0


def unsure(config: Any, folder: Any, classifier: Any) -> api.AnswerRule:
    def apply(answers: list[dict[str, Any]], predictions: list[Any], marks_n: Any) -> None:
        for answer, one in zip(answers, predictions, strict=True):
            answer["unsure"] = max(one.probabilities.values()) < config.unsure.below

    return api.AnswerRule(apply=apply, columns=("unsure",), lines=["unsure answers are marked"], digest="1")


def longest(config: Any, stored: Any) -> api.Finding:
    most = max(len(text) for found in stored.answers() for text in found.rows.texts)
    return api.Finding("longest", most, [], [f"the longest text has {most} characters"])


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    parts = [
        api.Part("answer_rule", "unsure", unsure, facts={"check": asked}),
        api.Part("analysis", "longest", longest, facts={"check": lambda config, folder, rows: config.longest}),
    ]
    sections = [
        api.Section("unsure", Unsure, "answers that are marked", into=("judge", "answer")),
        api.Section("", Longest, "", into=("judge",)),
    ]
    api.register(api.Plugin("mine", parts=parts, sections=sections))
    yield
    unregister("mine")


def test_a_rule_marks_answers(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["predict", f"run={model_folder}", "text=a good film", CPU]
    assert main([*said, "unsure.below=0.99"]) == 0
    out, err = capsys.readouterr()
    assert err == "unsure answers are marked\n"
    answer = json.loads(out)
    assert answer["unsure"] == (max(answer["probabilities"].values()) < 0.99)
    assert main(said) == 0
    assert "unsure" not in json.loads(capsys.readouterr().out)
    assert main([*said, "unsure.below=1"]) == 2
    assert capsys.readouterr().err.startswith("plugin mine: unsure.below=1 marks every answer: ask for less")


def test_a_question_is_answered(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [f"a {'very ' * (at % 5)}good film" for at in range(30)]
    lines = [f"{text},{LABELS[at % 3]}" for at, text in enumerate(texts)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]))
    said = ["evaluate", f"run={model_folder}", f"data.path={tmp_path / 'rows.csv'}", CPU]
    assert main([*said, f"output={tmp_path / 'one'}", "longest=true"]) == 0
    assert "the longest text has 31 characters" in capsys.readouterr().out
    assert json.loads((tmp_path / "one" / "metrics.json").read_text())["longest"] == 31
    assert main([*said, f"output={tmp_path / 'two'}"]) == 0
    assert "longest" not in json.loads((tmp_path / "two" / "metrics.json").read_text())
