"""A model's id becomes a folder, with and without a network."""

from pathlib import Path

import huggingface_hub
import pytest

from manyheads.huggingface import origin as hub

OFFLINE = (
    "init_from=some/model is no folder here, and the Hugging Face hub cannot be reached, as the network is off or "
    "down: connect, or name a local folder"
)


@pytest.fixture
def fetched(monkeypatch, tmp_path) -> list[list[str]]:
    """What the hub is asked for; it has a model in PyTorch's own format."""
    calls: list[list[str]] = []

    def snapshot_download(name: str, *, allow_patterns: list[str], etag_timeout: float) -> str:
        if name != "some/model":
            raise OSError("404 Not Found.\nSee the manual")
        calls.append(allow_patterns)
        (tmp_path / "config.json").touch()
        if "pytorch_model.bin" in allow_patterns:
            (tmp_path / "pytorch_model.bin").touch()
        return str(tmp_path)

    monkeypatch.setattr(hub, "can_connect", lambda: True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_weights_that_can_run_code_are_fetched_only_where_there_are_no_others(fetched, tmp_path):
    assert hub.local_folder("some/model") == tmp_path
    assert ["pytorch_model.bin" in asked for asked in fetched] == [False, True]
    (tmp_path / "model.safetensors").touch()
    hub.local_folder("some/model")
    assert ["pytorch_model.bin" in asked for asked in fetched] == [False, True, False]
    assert not any(name.endswith(".py") or name == "*" for asked in fetched for name in asked)


def test_what_the_hub_answers_is_one_sentence(fetched):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        hub.local_folder("another/model")
    assert str(caught.value) == (
        "init_from=another/model cannot be fetched from the Hugging Face hub (404 Not Found): "
        "check the name, or name a local folder"
    )


def test_without_a_network_the_copy_is_taken(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        hub.local_folder("some/model")
    assert str(caught.value) == OFFLINE
    copy = tmp_path / "models--some--model"
    for folder in (copy / "refs", copy / "snapshots" / "abc"):
        folder.mkdir(parents=True)
    (copy / "refs" / "main").write_text("abc")
    (copy / "snapshots" / "abc" / "config.json").touch()
    assert hub.local_folder("some/model") == copy / "snapshots" / "abc"
