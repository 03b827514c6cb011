"""Secrets of the environment reach nothing that is written or said; those that are typed are refused, unsaid."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.validation import refuse_secrets
from manyheads.cli.verbs import VERBS
from tests.registry import SWEEPS

SECRETS = {
    "HF_TOKEN": "hf_FakeButSecret0123456789abcdef",
    "WANDB_API_KEY": "0123fake456fake789fake0123fake456fake789",
    "AWS_SECRET_ACCESS_KEY": "FakeAwsSecret/0123456789+abc",
    "AWS_ACCESS_KEY_ID": "AKIAFAKEFAKEFAKE0001",
    "MY_PASSWORD": "correct-horse-battery-staple",
    "HTTPS_PROXY": "http://me:proxy-password-77@127.0.0.1:9",
}
TINY = ["debug=fast", "hardware=cpu", "trainer.max_epochs=1", "batch.rows=8"]


@pytest.mark.slow
def test_those_of_the_environment_are_nowhere(rows, tmp_path):
    """A whole run, judged and looked into, in processes of their own; then everything they wrote and said is read."""
    rows(tmp_path / "rows.csv")
    said = b""
    for words in (
        ["train", "data.path=rows.csv", "output=run", *TINY],
        ["evaluate", "run=run"],
        ["predict", "run=run", "text=it purrs"],
        *([["look", "run=run", "text=it purrs"]] if "look" in VERBS else []),
        ["train", "data.path=no.csv"],
        ["train", "data.hub=no/such"],
    ):
        environment = os.environ | SECRETS | {"MANYHEADS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "manyheads", *words],
            cwd=tmp_path, env=environment, capture_output=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == (2 if "=no" in words[1] else 0), done.stderr
        said += done.stdout + done.stderr
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) > 15
    hidden = [*SECRETS.values(), "proxy-password-77"]
    for content in (said, *written.values()):
        assert not [secret for secret in hidden if secret.encode() in content]


TYPED = [
    "data.path=https://me:password123@host/rows.csv", "data.path=s3://me:password123@bucket/rows.csv",
    "data.revision=//me:password123@x",
    "tokenizer.path=a//password123@b/c",
    "output=sftp://me:password123@host/x", "data.cache=file://me:password123@host",
    "data.path=/data/correct-horse-battery-staple.csv", "data.label=0123fake456fake789fake0123fake456fake789",
    "data.text=hf_FakeButSecret0123456789abcdef",
]  # fmt: skip


@pytest.mark.parametrize("word", TYPED)
@pytest.mark.parametrize("more", [[], pytest.param(["-m"], marks=SWEEPS)], ids=["plain", "swept"])
def test_those_that_are_typed_are_refused_unsaid(word, more, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert main(["train", *more, word]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(word.partition("=")[0])
    assert "settings are written into the folder of the run" in said.err
    assert not [secret for secret in ("password123", *SECRETS.values()) if secret in said.err]
    assert list(tmp_path.iterdir()) == []


def test_honest_settings_are_none(monkeypatch):
    monkeypatch.setenv("SHORT_KEY", "tiny")
    monkeypatch.setenv("LANGUAGE", "rows.csv")
    monkeypatch.setenv("KEYBOARD", "rows.csv")
    refuse_secrets({"data": {"path": "/tiny/rows.csv", "text": "a@b", "label": "x//y"}, "hub": "https://host/x"})


def test_a_text_to_answer_may_speak_of_any_address(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRETS["HF_TOKEN"])
    for verb in {"predict", "look"} & VERBS.keys():
        text = "see https://me@example.org"
        assert compose(verb, ["run=run", f"text={text}"]).text == text
        with pytest.raises(ValueError, match=r"^text holds what \$HF_TOKEN holds"):
            compose(verb, ["run=run", f"text=it is {SECRETS['HF_TOKEN']}"])


@given(st.text(alphabet=st.characters(exclude_characters="/@ ", exclude_categories=["Z", "C"]), min_size=1))
def test_any_name_in_an_address_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="holds an address with a name or a password in it"):
        refuse_secrets({"data": {"path": f"https://{name}@host/x"}})
