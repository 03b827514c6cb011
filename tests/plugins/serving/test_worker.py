"""What a process with a model answers, beside `manyheads.load(...).predict`."""

import json
from itertools import product

import pytest
import torch

import manyheads
import manyheads.plugin as plugin
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config import Accelerator, InferenceHardware, Member, OnBadRow, Precision
from manyheads.inference.classifier import Prediction, TextClassifier
from manyheads.inference.folder import load
from manyheads.inference.rules import AnswerRule
from manyheads.plugin import Part, Plugin, register, unregister
from manyheads.plugins.serving.config import ServeConfig, ServedTexts
from manyheads.plugins.serving.worker import about, open_served, replies
from tests.conftest import CALIBRATED_TEXTS, WORDS

TEXTS = ["good film", "a bad film", "not so good", "ß", "very very awful film a film", "zebra"]
PAIRS = [*TEXTS[1:], TEXTS[0]]
PLAIN = {"kind": "predict", "pairs": None, "top_k": 0, "thresholds": None, "members": False}


def ask(folder, *questions, **settings):
    """The answers to questions that come together, as status and what the JSON holds."""
    config = ServeConfig(run=str(folder), **settings)
    found = list(replies(open_served(config), [PLAIN | one for one in questions]))
    return [(status, json.loads(body) if status == 200 and body.startswith("{") else body) for status, body in found]


@pytest.mark.parametrize("exact", [True, False])
def test_answers_are_those_of_load(model_folder, pair_folder, exact):
    for folder, pairs in ((model_folder, None), (pair_folder, PAIRS)):
        seconds = [None if pairs is None else [one] for one in pairs or TEXTS]
        together = [{"texts": [text], "pairs": pair} for text, pair in zip(TEXTS, seconds, strict=True)]
        answers = ask(folder, {"texts": TEXTS, "pairs": pairs}, *together, exact=exact)
        rows = [row for status, said in answers for row in said["predictions"]]
        expected = [
            manyheads.load(folder).predict([text], pair)[0] for text, pair in zip(TEXTS, seconds, strict=True)
        ] * 2
        assert [row["label"] for row in rows] == [one.label for one in expected]
        for row, one in zip(rows, expected, strict=True):
            if exact:
                assert row["probabilities"] == one.probabilities  # to the last bit
            else:
                assert row["probabilities"] == pytest.approx(one.probabilities, abs=5e-3)


@pytest.mark.parametrize(
    ("empty", "exact"),
    [
        pytest.param(empty, exact, marks=[pytest.mark.slow] * (at % 2 == exact))
        for at, empty in enumerate(["", " \n", "\u3000", "\u200b \u2060"])
        for exact in (True, False)
    ],
)
def test_an_empty_text_has_no_answer(model_folder, pair_folder, label_folder, exact, empty):
    good, bad = {"texts": ["good film"]}, {"texts": ["good film", empty, "bad"]}
    (_, alone), (status, said), _ = ask(model_folder, good, bad, good, exact=exact)
    assert (status, said) == (422, "texts[1] is empty, and an empty text has no answer: leave it out")
    drop = ServedTexts(on_bad_row=OnBadRow.drop)
    (_, again), (status, said), _ = ask(model_folder, good, bad, good, exact=exact, data=drop)
    rows = said["predictions"]
    assert again == alone
    assert (status, rows[0], rows[1]) == (200, alone["predictions"][0], {"label": None, "probabilities": {}})
    assert rows[2]["label"] == manyheads.load(model_folder).predict(["bad"])[0].label
    ((_, said),) = ask(label_folder, {"texts": [empty]}, exact=exact, data=drop)
    assert said == {"predictions": [{"labels": None, "probabilities": {}}]}
    pairs = {"texts": ["good", "bad"], "pairs": ["bad", empty]}
    ((status, said),) = ask(pair_folder, pairs, exact=exact)
    assert (status, said) == (422, "pairs[1] is empty, and an empty text has no answer: leave it out")
    ((_, said),) = ask(pair_folder, pairs, exact=exact, data=drop)
    assert [row["label"] is None for row in said["predictions"]] == [False, True]
    ((status, said),) = ask(pair_folder, {"texts": [empty]}, exact=exact, data=drop)
    assert (status, said) == (422, "the model was trained on pairs of texts, but second texts are missing")


def test_top_k_and_members(model_folder):
    ((_, said),) = ask(model_folder, {"texts": ["good film"], "top_k": 2, "members": True})
    (row,) = said["predictions"]
    (one,) = manyheads.load(model_folder).predict(["good film"])
    ranked = sorted(one.probabilities.items(), key=lambda pair: -pair[1])
    assert list(row["probabilities"].items()) == ranked[:2]
    assert row["members"] == {"network": one.probabilities}


def test_thresholds_of_labels(label_folder, model_folder):
    (one,) = manyheads.load(label_folder).predict(["good film"])
    first, second, third = sorted(one.probabilities, key=lambda name: -one.probabilities[name])
    middle = one.probabilities[second]
    (_, all_three), (_, own), (_, some), (_, unknown) = ask(
        label_folder,
        {"texts": ["good film"], "thresholds": 0.0},
        {"texts": ["good film"]},
        {"texts": ["good film"], "thresholds": {first: 1.0, second: middle, third: 1.0}},
        {"texts": ["good film"], "thresholds": {"other": 0.5}},
    )
    assert all_three["predictions"][0]["labels"] == [first, second, third]
    assert own["predictions"][0]["labels"] == one.labels
    assert some["predictions"][0]["labels"] == [second]
    assert "'other', which is no label" in unknown
    ((status, said),) = ask(model_folder, {"texts": ["good film"], "thresholds": 0.5})
    assert status == 422
    assert "leave them out" in said


@pytest.mark.parametrize("exact", [True, False])
def test_a_question_that_does_not_fit_takes_none_of_the_others_with_it(model_folder, exact):
    answers = ask(model_folder, {"texts": ["good"]}, {"texts": ["a"], "pairs": ["b"]}, {"texts": ["bad"]}, exact=exact)
    assert [status for status, _ in answers] == [200, 422, 200]
    assert answers[1][1] == "the model was trained on single texts, but pairs are given"


def test_a_text_that_the_model_fails_on_takes_none_of_the_others_with_it(model_folder, monkeypatch, capsys):
    predict = TextClassifier.predict

    def fails(self, texts, *given, **named):
        if "bad" in texts:
            raise RuntimeError("out of order")
        return predict(self, texts, *given, **named)

    monkeypatch.setattr(TextClassifier, "predict", fails)
    answers = ask(model_folder, {"texts": ["good"]}, {"texts": ["bad"]}, {"texts": ["a film"]}, exact=False)
    assert [status for status, _ in answers] == [200, 500, 200]
    assert "out of order" in capsys.readouterr().err


def test_pairs_that_are_missing_in_one_question_and_too_many_in_another_move_none_of_a_third(pair_folder):
    third = {"texts": ["good film"], "pairs": ["so so"]}
    short, long = {"texts": ["a", "b"], "pairs": ["c"]}, {"texts": ["a"], "pairs": ["bad", "awful"]}
    answers = ask(pair_folder, short, third, long, exact=False)
    assert [status for status, _ in answers] == [422, 200, 422]
    (alone,) = manyheads.load(pair_folder).predict(["good film"], ["so so"])
    assert answers[1][1]["predictions"][0]["probabilities"] == pytest.approx(alone.probabilities, abs=5e-3)
    assert [status for status, _ in ask(pair_folder, {"texts": []}, third, exact=False)] == [422, 200]


def test_a_page_is_the_one_of_a_view_that_is_registered(model_folder):
    def view(predictor, text, pair, *, answer, source, loud):
        return f"{source}: {text.upper() if loud else text} {pair} {answer.label}"

    asked = {"kind": "look", "view": "mine", "texts": ["good film"], "options": {"loud": True}}
    register(Plugin("own", parts=[Part("view", "mine", view, {"loud": False})]))
    try:
        ((status, page),) = ask(model_folder, asked)
        (one,) = manyheads.load(model_folder).predict(["good film"])
        assert (status, page) == (200, f"{model_folder.name}: GOOD FILM None {one.label}")
        found = about(open_served(ServeConfig(run=str(model_folder))))
        assert found["views"]["mine"] == {"options": {"loud": False}, "labels": {}, "why_not": ""}
        facts = {"why_not": lambda predictor: "not this one"}
        register(Plugin("own", parts=[Part("view", "mine", view, {"loud": False}, facts)]))
        assert ask(model_folder, asked) == [(422, "not this one")]
    finally:
        unregister("own")


@pytest.mark.skipif("heads" not in plugin.names("view"), reason="no plugin adds the view")
def test_a_page_shows_the_heads_that_are_asked_for(model_folder):
    options = {"layers": "2", "heads": "1", "attribution": True}
    asked = {"kind": "look", "view": "heads", "texts": ["good <b>film"], "options": options}
    ((status, page), (_, wrong)) = ask(model_folder, asked, asked | {"options": options | {"layers": "7"}})
    assert status == 200
    assert "good &lt;b&gt;film" in page
    assert page.count('id="map-') == 1
    assert "Integrated gradients" in page
    assert wrong == "layers=7 is out of range: the model has layers 1 to 2"


def test_served_answers_are_those_of_a_calibrated_run(calibrated):
    folder, seconds = calibrated
    hardware = InferenceHardware(accelerator=Accelerator.cpu, precision=Precision.fp32)
    ((_, said),) = ask(folder, {"texts": CALIBRATED_TEXTS, "pairs": seconds}, hardware=hardware)
    for row, one in zip(said["predictions"], load(folder).predict(CALIBRATED_TEXTS, seconds), strict=True):
        assert row["probabilities"] == pytest.approx(one.probabilities, abs=1e-5)
        labels = [one.label] if isinstance(one, Prediction) else one.labels
        assert row.get("labels", [row.get("label")]) == labels


@pytest.mark.parametrize("member", [Member.network, Member.linear])
def test_a_member_that_answers_alone_has_its_own_name(calibrated, member):
    folder, seconds = calibrated
    hardware = InferenceHardware(accelerator=Accelerator.cpu, precision=Precision.fp32)
    asked = {"texts": CALIBRATED_TEXTS, "pairs": seconds, "members": True}
    ((_, said),) = ask(folder, asked, hardware=hardware, members=member)
    for row in said["predictions"]:
        assert row["members"].keys() == {member.name}
        assert row["members"][member.name] == pytest.approx(row["probabilities"], abs=1e-6)


def answers_of_predict(folder, tmp_path, *words):
    """The rows that `manyheads predict` writes for TEXTS, each text of which is a command of its own."""
    rows = []
    for at, text in enumerate(TEXTS):
        output = tmp_path / f"{at}.jsonl"
        assert main(["predict", f"run={folder}", f"text={text}", f"output={output}", *words]) == 0
        rows += [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    return rows


def same_answers(said, expected, columns):
    for row, one in zip(said["predictions"], expected, strict=True):
        assert {name: row[name] for name in columns} == {name: one[name] for name in columns}
        assert row["probabilities"] == pytest.approx(one["probabilities"], abs=1e-6)


@pytest.mark.parametrize("exact", [True, False])
def test_rules_change_answers_as_in_predict(model_folder, tmp_path, exact):
    def make(config, folder, classifier):
        def mark(classifier, texts, pairs, *, tokens):
            lengths_n = torch.tensor([len(text) for text in texts])
            return classifier.network_logits(texts, pairs, tokens=tokens), lengths_n

        def apply(answers, predictions, marks_n):
            for answer, one, length in zip(answers, predictions, marks_n.tolist(), strict=True):
                answer["length"] = length
                if length > 10:
                    answer["label"] = f"not {one.label}"

        return AnswerRule(apply=apply, columns=("length",), lines=["long texts are not what they seem"], mark=mark)

    register(Plugin("own", parts=[Part("answer_rule", "mine", make)]))
    try:
        fp32 = InferenceHardware(precision=Precision.fp32)
        expected = answers_of_predict(model_folder, tmp_path, "hardware.precision=fp32")
        assert any(row["label"].startswith("not ") for row in expected)
        halves = [{"texts": TEXTS[:3]}, {"texts": TEXTS[3:]}]
        found = ask(model_folder, {"texts": TEXTS}, *halves, exact=exact, hardware=fp32)
        same_answers(found[0][1], expected, ["label", "length"])
        for (status, said), some in zip(found[1:], (expected[:3], expected[3:]), strict=True):
            assert status == 200
            same_answers(said, some, ["label", "length"])
        drop = ServedTexts(on_bad_row=OnBadRow.drop)
        ((_, said),) = ask(model_folder, {"texts": ["", TEXTS[0]]}, exact=exact, data=drop)
        assert said["predictions"][0] == {"label": None, "probabilities": {}, "length": None}
        assert about(open_served(ServeConfig(run=str(model_folder))))["rules"] == ["long texts are not what they seem"]
    finally:
        unregister("own")


@pytest.mark.skipif("promises" not in plugin.names("answer_rule"), reason="no plugin adds the rule")
def test_texts_are_left_unanswered_and_have_sets_as_in_predict(model_folder, tmp_path):
    rows = [f"{' '.join(text)},{label}\n" for text in product(WORDS, repeat=2) for label in ("good", "bad", "so-so")]
    (tmp_path / "labelled.csv").write_text("text,label\n" + "".join(rows))
    rules = [f"labelled={tmp_path / 'labelled.csv'}", "abstain.risk=0.6", "sets.coverage=0.8"]
    expected = answers_of_predict(model_folder, tmp_path, "hardware.precision=fp32", *rules)
    config = compose("serve", [f"run={model_folder}", "hardware.precision=fp32", *rules])
    served = open_served(config)
    assert len(about(served)["rules"]) == 2
    ((_, body),) = replies(served, [PLAIN | {"texts": TEXTS}])
    same_answers(json.loads(body), expected, ["label", "set"])
    assert any(row["label"] is None for row in expected)
