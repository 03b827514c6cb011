"""`manyheads export format=browser`: the folder of a graph with a page that answers in a browser, without a server of
models: onnxruntime-web computes, and @huggingface/tokenizers reads texts.

The page says where it reads texts otherwise than the run: it has the token ids of some texts to compare its own with.
"""

import json
import shutil
import sys
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from manyheads.data.tokenizer import PROBE, copy_tokenizer, names_of_marks
from manyheads.data.tokens import segments_of, texts_of_marks
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.plugins.hub.parity import UNKNOWN

PAGE = Path(__file__).parent / "page"
PACKAGES = {"onnxruntime-web": "1.30.0", "@huggingface/tokenizers": "0.2.0"}  # of npm
ODD = (
    "Straße, ÉTÉ; ΟΔΟΣ İ naïve… 3.5%!",
    "好的電影 ちょっと 영화",
    "น้ำ किताब مرحبا",
    "👍🏽 ok\tso\nso",
    "x" * 300,
    UNKNOWN,
)
MARKS = 8  # most that are typed in a text of these
ABOUT_PAGE = f"""
## The page

`python -m http.server` in this folder, or any other server of files, shows it at http://localhost:8000. It computes in
the browser: no text leaves it. {" and ".join(f"{name}@{version}" for name, version in PACKAGES.items())} come from the
CDN jsdelivr or, once `npm install` was run in this folder, from node_modules/. `classifier.js` is for pages of yours.
"""


def write_browser_files(part: Path, predictor: TextClassifier, *, both: bool, is_plain: bool) -> None:
    """Add the page to the folder of a graph, with what it has to know of the tokenizer and, if the graph has the linear
    model, too, of letters.

    Raises:
        UserError: the tokenizer takes marks such as [SEP] that are typed in a text as text only by a setting of the
            library, which that of JavaScript does not have; the rest of a sentence about the run.
    """
    if not is_plain:
        raise UserError(
            "has a tokenizer that reads [SEP] and other marks that are typed in a text as text by a setting that "
            "JavaScript does not have: use format=onnx"
        )
    for file in PAGE.iterdir():
        shutil.copyfile(file, part / file.name)
    package = {"private": True, "type": "module", "dependencies": PACKAGES}
    (part / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
    facts = around_texts(predictor.tokenizer, pairs=predictor.pairs)
    tokenizer = copy_tokenizer(predictor.tokenizer)
    tokenizer.enable_truncation(predictor.max_length, strategy="longest_first")
    facts["examples"] = example_ids(tokenizer, pairs=predictor.pairs)
    if both:
        facts["folded"] = folded_letters()
    (part / "browser.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")


def around_texts(tokenizer: Tokenizer, *, pairs: bool) -> dict[str, Any]:
    """The `marks` that the tokenizer puts before, between and after texts, each with its segment, and the `segments` of
    the texts."""
    probe = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    segments_N = segments_of(probe, texts_of_marks(tokenizer)) if pairs else [0] * len(probe)
    marks: list[list[tuple[int, int]]] = [[] for _ in range(3 if pairs else 2)]
    segments = [0, 0] if pairs else [0]
    n_before = 0  # texts
    for id, text, segment in zip(probe.ids, probe.sequence_ids, segments_N, strict=True):
        if text is None:
            marks[n_before].append((id, segment))
        else:
            n_before, segments[text] = text + 1, segment
    return {"marks": marks, "segments": segments}


def folded_letters() -> dict[str, str]:
    """The letters whose folded form is not their lower case, which is all that JavaScript has."""
    letters = map(chr, range(sys.maxunicode + 1))
    return {letter: letter.casefold() for letter in letters if letter.casefold() != letter.lower()}


def example_ids(tokenizer: Tokenizer, *, pairs: bool) -> list[dict[str, Any]]:
    """Texts of the vocabulary and odd ones, none of them of the data, with their token ids."""
    words = [word for word in sorted(tokenizer.get_vocab()) if word.isalpha()] or ["a"]
    texts = [" ".join(islice(cycle(words[at:]), 0, 40 * 50, 50)) for at in (0, 1, 2)]
    texts += [*ODD, *(f"{words[0]} {name} {words[-1]}" for name in names_of_marks(tokenizer)[:MARKS])]
    found = []
    for text, pair in zip(texts, texts[1:] + texts[:1], strict=True):
        encoded = tokenizer.encode(text, pair) if pairs else tokenizer.encode(text)
        found.append({"texts": [text, pair] if pairs else [text], "ids": encoded.ids})
    return found
