"""What verbs and settings of other plugins say of models that they cannot use."""

import pytest

from manyheads.cli.main import main
from manyheads.config import ModelConfig
from manyheads.config.facts import settings
from manyheads.config.inference import PredictConfig


@pytest.fixture
def complaint(capsys):
    def said(*words: str) -> str:
        assert main([*words]) == 2
        sentence = capsys.readouterr().err
        assert sentence.count("\n") == 1
        return sentence

    return said


@pytest.mark.verb("export")
def test_a_model_of_another_task_is_refused(text_folder, complaint):
    assert "answers by texts" in complaint("export", f"run={text_folder}")


@pytest.mark.verb("serve")
def test_a_classifier_is_served_alone(text_folder, complaint):
    assert "a classifier is needed here" in complaint("serve", f"run={text_folder}")


@pytest.mark.skipif("outliers.false_alarms" not in settings(PredictConfig), reason="needs the section outliers")
def test_a_model_that_gives_no_vectors_is_refused(text_folder, complaint):
    said = complaint("predict", f"run={text_folder}", "outliers.false_alarms=0.1", "text=a film")
    assert "but the model of run has no classes: remove it" in said


@pytest.mark.verb("look")
def test_recurrent_models_are_refused(ship_model, tmp_path, complaint):
    shape = ModelConfig(encoder="lstm", pooling="attention", n_layers=1, d_model=16)
    ship_model(tmp_path / "model", shape=shape)
    said = complaint("look", f"run={tmp_path}", "text=good")
    assert said.startswith("look shows heads of self-attention, ")
    assert "model.encoder=lstm" in said
    assert not (tmp_path / "look").exists()


@pytest.mark.verb("look")
def test_models_that_answer_by_texts_are_refused(text_folder, complaint):
    said = complaint("look", f"run={text_folder}", "text=good")
    assert "has task=seq2seq, " in said
    assert said.endswith("name a run with task=classify\n")
