"""Texts to batches: tokenised once, read again at the next start, and never waited for in a step: loading.json.

    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/loading.py [NAME ...]

`learn` is the tokenizer learned from the training texts, `tokenise` all texts of all splits to ids and into the cache,
`read again` what a later start does instead: hash the texts, read and check the files. `look up` compares, on the texts
of train and in turns, a new table of words with the library, which reads whole texts on all cores: seconds of each, and
their ratios. `waiting` is the share of the training loop in which a step waits for its batch: 60 steps through
Lightning at 4 x 256, no worker processes.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from machine import machine

RESULTS = Path(__file__).with_suffix(".json")
STEPS, ROUNDS = 60, 5
SHAPE = ("model=mini", "tokenizer.vocab_size=30522", f"trainer.max_steps={STEPS}", "trainer.limit_val_batches=0")


def main() -> None:
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds NAME/train.csv")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {
        "machine": machine(),
        "versions": {name: version(name) for name in ("torch", "tokenizers", "lightning")},
    }
    for name in sys.argv[1:] or ["ag_news_10k", "imdb"]:
        with tempfile.TemporaryDirectory() as scratch:
            results[name] = measure(Path(data) / name, Path(scratch))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name], indent=1), flush=True)


def measure(data: Path, scratch: Path) -> dict[str, Any]:
    from manyheads.cli.compose import compose
    from manyheads.data.prepare_tokens import prepare_tokens
    from manyheads.data.sources import read_splits
    from manyheads.data.token_cache import cached_tokenizer

    run = compose("train", [f"data.path={data}", f"data.cache={scratch}", f"output={scratch / 'run'}", *SHAPE])
    started = perf_counter()
    splits = read_splits(run.data, run.seed)
    figures = {"read and check the files s": perf_counter() - started}
    texts = [text for rows in splits.by_name().values() for text in rows.texts]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    started = perf_counter()
    cached_tokenizer(splits.train, run.tokenizer, scratch)
    learnt = perf_counter()
    prepare_tokens(splits, run)
    tokenised = perf_counter()
    figures |= {"learn s": learnt - started, "tokenise s": tokenised - learnt}
    figures |= {"texts": len(texts), "MB": megabytes, "tokenise MB/s": megabytes / (tokenised - learnt)}
    again = []
    for _ in range(5):
        started = perf_counter()
        prepare_tokens(splits, run)
        again.append(perf_counter() - started)
    figures |= {"read again s": sorted(again)[2], "read again s, slowest": max(again)}
    figures |= look_up(
        splits.train.texts[:], cached_tokenizer(splits.train, run.tokenizer, scratch), run.data.max_length
    )
    if data.name == "ag_news_10k":
        figures |= waiting(run)
    return {name: round(value, 4) for name, value in figures.items()}


def look_up(texts: list[str], tokenizer: Any, max_length: int) -> dict[str, float]:
    """Whole texts, and words by a table that is empty at first, in turns: medians, and the least and most ratio."""
    from manyheads.data.ids.words import Words
    from manyheads.data.tokens import encode

    whole: list[float] = []
    words: list[float] = []
    for _ in range(ROUNDS):
        found = []
        for seconds, table in ((whole, None), (words, Words(tokenizer).look_up)):
            started = perf_counter()
            found.append(encode(tokenizer, texts, None, None, max_length, look_up=table).ids_N)
            seconds.append(perf_counter() - started)
        assert found[0].equal(found[1])
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    ratios = [slow / fast for slow, fast in zip(whole, words, strict=True)]
    return {
        "whole texts MB/s": megabytes / median(whole),
        "looked up MB/s": megabytes / median(words),
        "look up, times": median(ratios),
        "look up, times, least": min(ratios),
        "look up, times, most": max(ratios),
    }


class LearntError(Exception):
    """Training has ended; the rest of the run is not of interest."""


def waiting(run: Any) -> dict[str, float]:
    """Seconds in which the loop asks for batches, and those of the whole loop."""
    from manyheads.data.batches import Batch, Batches
    from manyheads.training.logs import Meter
    from manyheads.training_run import train

    asked: list[float] = []
    loop: list[float] = []
    batches = Batches.__iter__

    def timed(self: Batches) -> Iterator[Batch]:
        made = batches(self)
        while True:
            started = perf_counter()
            batch = next(made, None)
            asked.append(perf_counter() - started)
            if batch is None:
                return
            yield batch

    def end(self: Meter, *_: Any) -> None:
        loop.append(self.seconds)
        raise LearntError

    Batches.__iter__, Meter.on_train_end = timed, end
    with suppress(LearntError):
        train(run)
    return {"loop s": loop[0], "waiting s": sum(asked), "waiting share": sum(asked) / loop[0], "steps": STEPS}


if __name__ == "__main__":
    main()
