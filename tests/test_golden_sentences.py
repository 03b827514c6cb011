"""The whole sentences of golden_sentences.txt. Other tests of mistakes ask for the setting and the exit code alone, so
that a sentence that is bettered is changed there and nowhere else."""

import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, choices, settings_of
from manyheads.config.conversion import choices_of
from manyheads.config.sentences import one_of

RENAMED: dict[str, str] = {}  # a setting, verb or preset in golden_sentences.txt -> its name now
FILE = Path(__file__).with_name("golden_sentences.txt")
LINES = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
SENTENCES = list(zip(LINES[::2], LINES[1::2], strict=True))
GOOD = [f"{'good' if at % 2 else 'bad'} film {at},{'pos' if at % 2 else 'neg'}" for at in range(60)]
TINY = "model.d_model=16 model.n_layers=1 model.n_heads=2 model.d_k=8 model.d_v=8 model.d_ff=16 trainer.max_steps=2"


def table(*rows: str, header: str = "text,label") -> str:
    return "\n".join([header, *rows, ""])


FILES = {
    "reviews.csv": table(*GOOD),
    "stars.csv": table(*GOOD, header="review,stars"),
    "empty.csv": "",
    "one-class.csv": table(*(f"film {at},good" for at in range(20))),
    "no-label.csv": table(*GOOD[:10], "a film,", *GOOD[10:]),
    "comma.csv": table(*GOOD[:10], "a film, and another,pos", *GOOD[10:]),
    "open-quote.csv": table(*GOOD[:10], '"a film,pos', *GOOD[10:]),
    "latin-1.csv": table(*GOOD[:10], "schön,pos"),
    "broken.jsonl": '{"text": "a film", "label": "pos"}\n{"text": "a film"\n',
    "other-labels.csv": table("a film,fine"),
}


def now(text: str) -> str:
    """A command or sentence with the names that there are now."""
    for old, new in RENAMED.items():
        text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
    return text


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The files that the commands name, a finished run, and a run with parts of a plugin that is not there."""
    home = tmp_path_factory.mktemp("golden")
    for name, content in FILES.items():
        (home / name).write_text(content, encoding="latin-1" if name.startswith("latin") else "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        words = ["train", "data.path=reviews.csv", "output=run", "hardware=cpu", *TINY.split()]
        assert main([now(word) for word in words]) == 0
    shutil.copytree(home / "run", home / "own-parts")
    config = home / "own-parts" / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"plugins": ["my_parts 1 0123456789abcdef"]}))
    return home


def expected(words: list[str], sentence: str) -> str:
    name, _, value = words[-1].partition("=")
    if "CHOICES" in sentence:
        known = choices(words[0], name) if name in VERBS[words[0]].groups else choices_of(settings_of(words[0])[name])
        assert value not in known
        sentence = sentence.replace("CHOICES", one_of(known))
    return sentence


@pytest.mark.parametrize(("command", "sentence"), SENTENCES, ids=[command for command, _ in SENTENCES])
def test_a_mistake_is_answered_by_this_sentence(command, sentence, home, capsys, monkeypatch):
    command, _, code = command.removesuffix(")").partition(" (exit code ")
    prompt, program, *words = shlex.split(now(command))
    assert (prompt, program) == ("$", "manyheads")
    skip_where_it_is_no_mistake(words)
    monkeypatch.chdir(home)
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = sorted(home.rglob("*"))
    assert main(words) == int(code or 2)
    assert " ".join(capsys.readouterr().err.split()) == expected(words, now(sentence))
    assert code or sorted(home.rglob("*")) == before, "nothing is written"


def skip_where_it_is_no_mistake(words: list[str]) -> None:
    if words[0] not in VERBS and len(words) > 1:
        pytest.skip(f"no plugin adds the verb {words[0]}")
    if "hardware=gpu" in words:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
    if "logger=wandb" in words:
        if "wandb" not in choices("train", "logger"):
            pytest.skip("no plugin adds this logger")
        if importlib.util.find_spec("wandb"):
            pytest.skip("wandb is installed")


def test_there_are_forty_and_some_of_every_kind():
    assert 40 <= len(SENTENCES) <= 50
    assert len({command for command, _ in SENTENCES}) == len(SENTENCES)
