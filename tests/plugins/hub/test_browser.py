"""What `manyheads export format=browser` writes: its JavaScript against Python, and its page in a real browser."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from manyheads.config import DataConfig, ModelConfig, Terms, TokenizerConfig, TokenizerKind
from manyheads.data.ids.terms import count_terms
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import train_tokenizer
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load, save
from manyheads.linear.blend import Blend, Tuned
from manyheads.linear.model import LinearModel, counted
from manyheads.nn import assemble
from manyheads.plugins.hub import browser, graph_folder
from manyheads.plugins.hub.config import ExportConfig, Format
from manyheads.plugins.hub.export import export
from tests.plugins.hub.test_graph import LETTERS, TEXTS

pytest.importorskip("onnxruntime")
SHAPE = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=8, d_v=6, d_ff=24)
PAGE = Path(browser.__file__).parent / "page"
node = pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")


def in_node(code: str, given: Any) -> Any:
    """What a module of JavaScript makes of `given`."""
    program = f"const given = JSON.parse(await new Response(process.stdin).text());\n{code}"
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program], input=json.dumps(given), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@node
@pytest.mark.parametrize("kind", Terms)
def test_terms_are_counted_as_in_python(kind, tmp_path):
    letters = "".join(map(chr, [*range(0x20, 0x2FF), *range(0x370, 0x5FF), *range(0x1E00, 0x2000)]))
    texts = [*TEXTS, *(text for text in LETTERS if "\ud800" not in text), "so so so\u200bso a\u00adb \x1c c\x85d"]
    texts += [letters[at : at + 40] for at in range(0, len(letters), 40)]
    texts += [" ".join(letters[at : at + 30]) for at in range(0, len(letters), 30)]
    shutil.copyfile(PAGE / "linear_terms.js", tmp_path / "linear_terms.mjs")  # by whose ending node knows a module
    code = f"""
        import {{ listTerms }} from {json.dumps((tmp_path / "linear_terms.mjs").as_uri())};
        console.log(JSON.stringify(given.texts.map((text) => listTerms(text, {json.dumps(kind.name)}, given.folded))));
    """
    found = in_node(code, {"texts": texts, "folded": browser.folded_letters()})
    for text, terms in zip(texts, found, strict=True):
        assert {int(term): count for term, count in terms} == count_terms(text, kind.name), text


@node
def test_texts_are_cut_as_by_the_tokenizer():
    """Of a pair the longer one first."""
    tokenizer = Tokenizer.from_str(train_tokenizer(Rows(["a b"], None, [0], "", [1]), TokenizerConfig()).to_str())
    lengths = [(first, second) for first in range(12) for second in range(12)]
    wanted = []
    for room in range(2, 14):
        tokenizer.enable_truncation(room + 3, strategy="longest_first")
        for first, second in lengths:
            ids = tokenizer.encode(" ".join("a" * first), " ".join("b" * second)).sequence_ids
            wanted.append([ids.count(0), ids.count(1)])
    source = (PAGE / "classifier.js").read_text(encoding="utf-8")
    code = source[source.index("function lengthsWithin") :]
    code += "console.log(JSON.stringify(given.map(([lengths, room]) => lengthsWithin(lengths, room))));"
    assert in_node(code, [[one, room] for room in range(2, 14) for one in lengths]) == wanted


@pytest.mark.parametrize("pairs", [False, True])
def test_marks_around_texts_are_those_of_the_tokenizer(pairs, ship_model, tmp_path):
    tokenizer = load(ship_model(tmp_path / "model", pairs=pairs, shape=SHAPE), TextClassifier).tokenizer
    facts = browser.around_texts(tokenizer, pairs=pairs)
    texts = ["good film", "so bad a film"][: 1 + pairs]
    ids: list[int] = []
    for marks, text in zip(facts["marks"], [*texts, None], strict=True):
        ids += [id for id, _ in marks]
        ids += tokenizer.encode(text, add_special_tokens=False).ids if text else []
    assert ids == tokenizer.encode(*texts).ids
    assert facts["segments"] == [0, 1][: 1 + pairs]


def test_a_tokenizer_that_javascript_would_read_otherwise_is_refused(ship_model, tmp_path, monkeypatch):
    model = ship_model(tmp_path / "model", shape=SHAPE)
    monkeypatch.setattr(graph_folder, "plain_tokenizer", lambda tokenizer: (tokenizer, False))
    with pytest.raises(UserError, match=r"^run=.* has a tokenizer that reads \[SEP\].*: use format=onnx"):
        export(ExportConfig(run=str(model), output=str(tmp_path / "out"), format=Format.browser))
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """node_modules with the packages of the page."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    home = tmp_path_factory.mktemp("npm")
    (home / "package.json").write_text(json.dumps({"private": True, "dependencies": browser.PACKAGES}))
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"npm cannot install the packages of the page: {done.stderr.splitlines()[-1]}")
    return home / "node_modules"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(packages: Path) -> Iterator[Callable[[Path], str]]:
    """The address of a folder, with the packages in it."""
    servers: list[ThreadingHTTPServer] = []

    def serve(folder: Path) -> str:
        (folder / "node_modules").symlink_to(packages)
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


ASKED = [
    *("good film", "a very bad film and not so good a film as the others are", "so", "unknown words \u17a3", "!!!"),
    *(
        "GOOD\u00adfilm, İ ΟΔΟΣ",
        "film " * 40,
        "a [SEP] film [CLS]",
        "Straße é e\u0301",
        "good\tfilm\nso\u200bso",
        "\U0001f44d ok",
    ),
]


def ship_read(
    folder: Path, kind: TokenizerKind, terms: Terms | None = None, *, pairs: bool = False, multi: bool = False
) -> Path:
    """A small model with a tokenizer as it is trained, and a linear member of `terms`."""
    texts = [*TEXTS, *ASKED]
    tokenizer = train_tokenizer(Rows(texts, None, [0] * len(texts), "", range(99)), TokenizerConfig(kind=kind))
    torch.manual_seed(1)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "n_classes": 3, "max_length": 12}
    network = assemble(SHAPE, **sizes, n_segments=2 if pairs else 0)
    torch.nn.init.normal_(network.head.weight)
    thresholds, blend = [0.5, 0.35, 0.6] if multi else None, None
    if terms is not None:
        terms_U = torch.tensor(sorted(set(counted(texts, None, terms).terms_E))[::2])
        votes_UC, rarity_U = 3 * torch.randn(len(terms_U), 3), 1 + torch.rand(len(terms_U))
        blend = Blend(LinearModel(terms_U, rarity_U, votes_UC, torch.tensor([0.1, 0.0, -0.2]), terms), 0.4, 1.5)
    members = dict.fromkeys(("network", "linear"), thresholds) if multi and blend else {}
    about: dict[str, Any] = {"tokenizer": tokenizer, "labels": ["bad", "good", "so-so"], "pairs": pairs}
    tuned = Tuned(blend, thresholds, members)
    save(folder, network, model=SHAPE, data=DataConfig(max_length=12), tuned=tuned, **about)
    return folder


def answers_of(chromium, address: str, texts: list[str], pairs: list[str] | None) -> dict[str, Any]:
    chromium.open(f"{address}index.html")
    chromium.wait("!document.getElementById('go').disabled", 60)
    given = f"{json.dumps(texts)}, {json.dumps(pairs)} ?? undefined"
    return chromium.value(f"""import("/classifier.js").then(async ({{ Classifier }}) => {{
        const made = await Classifier.open();
        const rows = await made.probabilities({given});
        return {{ rows, labels: await made.predict({given}), misread: made.misread() }};
    }})""")


CASES = [
    *((kind, None, False, False) for kind in TokenizerKind),
    (TokenizerKind.wordpiece, Terms.words, False, False),
    (TokenizerKind.wordpiece, Terms.both, False, True),
    (TokenizerKind.wordpiece, None, True, False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "terms", "pairs", "multi"), CASES)
def test_a_page_answers_as_the_run_does(kind, terms, pairs, multi, served, chromium, tmp_path):
    model = ship_read(tmp_path / "model", kind, terms, pairs=pairs, multi=multi)
    config = ExportConfig(run=str(model), output=str(tmp_path / "out"), format=Format.browser)
    seconds = ASKED[::-1] if pairs else None
    found = answers_of(chromium, served(export(config)), ASKED, seconds)
    expected = load(model, TextClassifier).predict(ASKED, seconds)
    np.testing.assert_allclose(found["rows"], [list(one.probabilities.values()) for one in expected], rtol=0, atol=1e-5)
    assert found["labels"] == [one[0] for one in expected]
    assert found["misread"] == []


@pytest.mark.slow
def test_the_page_is_used_by_the_keyboard(served, chromium, tmp_path):
    model = ship_read(tmp_path / "model", TokenizerKind.wordpiece)
    folder = export(ExportConfig(run=str(model), output=str(tmp_path / "out"), format=Format.browser))
    address = served(folder)
    for wide in (1280, 390):
        chromium.open(address, wide=wide, dark=wide == 390)
        chromium.wait("!document.getElementById('go').disabled", 60)
        assert chromium.value("document.activeElement.id") == "text-0"
        chromium.send("Input.insertText", text="good <b>film</b>")
        chromium.press("Tab", "Enter")
        chromium.wait("!document.getElementById('answer').hidden")
        (expected,) = load(model, TextClassifier).predict(["good <b>film</b>"])
        assert chromium.value("document.getElementById('label').textContent") == expected.label  # type: ignore[union-attr]
        assert chromium.value("document.querySelectorAll('#rows tr').length") == 3
        assert chromium.value("document.documentElement.scrollWidth") <= wide
        assert chromium.findings() == []
    chromium.value(
        "document.getElementById('text-0').value = ' \\u200b'; document.getElementById('ask').requestSubmit()"
    )
    chromium.wait("document.getElementById('mistake').textContent.includes('empty')")
    assert [one for one in chromium.complaints if not one.startswith(f"asked for {address}")] == []
