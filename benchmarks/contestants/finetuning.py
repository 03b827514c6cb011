"""Those who fine-tune MiniLM side by side in `benchmarks/finetune.py`, from the same token ids."""

import itertools
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from contestants.process import SEARCH, best
from contestants.settings import CLIP, N_STEPS, WEIGHT_DECAY, Text, Way

LR = 5e-5
NAMES = {
    "a": "transformers, a plain loop: 32 texts, padded to the longest",
    "b": "transformers, the same, texts grouped by length",
    "c": "Hugging Face Trainer, best settings",
    "f": "manyheads",
    "g": "manyheads, averaging weights as by default",
}
TEXTS = {
    "banking77": Text("banking77", 128),
    "emotion": Text("emotion", 128),
    "ag_news_10k": Text("ag_news_10k", 128),
    "imdb": Text("imdb", 256),
}


def tune(name: str, setting: str, folder: Path, driver: Connection) -> None:
    """Fine-tune as contestant `name` on what `prepare` left in `folder`, turn by turn, until the driver ends it."""
    import torch

    from contestants.texts import read
    from contestants.turns import Turns
    from manyheads.runs.config_file import read_run

    driver.send(torch.get_num_threads())
    text, (tokenizer, tokens), turns = TEXTS[setting], read(folder), Turns(driver)
    run = read_run(folder / "config.yaml")
    if name == SEARCH:
        from contestants import huggingface

        return driver.send(huggingface.search(opener(run.init_from, tokens), tokenizer, tokens, driver.recv()))
    if name == "c":
        return by_trainer(run.init_from, text, tokenizer, tokens, turns, best(folder))
    if name in "ab":
        return by_plain_loop(run.init_from, tokenizer, tokens, turns, by_length=name == "b")
    tune_ours(run, tokenizer, tokens, turns, average=name == "g")


def prepare(setting: str, data: Path, weights: Path, folder: Path) -> list[int]:
    """Write ids, tokenizer and our settings into `folder`; returns the length of each training row in tokens."""
    from safetensors.torch import save_file

    from manyheads.cli.compose import compose
    from manyheads.data.prepare_tokens import prepare_tokens
    from manyheads.data.sources import read_splits
    from manyheads.runs.config_file import save_run

    text = TEXTS[setting]
    ends = [f"trainer.max_steps={N_STEPS}", "trainer.max_epochs=-1", "trainer.limit_val_batches=0"]
    more = [f"optim.lr={LR}", f"optim.weight_decay={WEIGHT_DECAY}", f"trainer.gradient_clip_val={CLIP}"]
    words = [f"init_from={weights}", f"data.path={data / text.folder}", f"data.max_length={text.max_length}"]
    ours = [*words, *ends, *more, f"checkpoint.every={N_STEPS}", "hardware.accelerator=cpu"]
    run = compose("train", ours)
    tokenizer, tokens = prepare_tokens(read_splits(run.data, run.seed, with_test=False), run)
    train = tokens["train"]
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"ids": train.ids_N, "offsets": train.offsets, "labels": train.labels}, folder / "train.safetensors")
    save_run(run, folder / "config.yaml")
    return train.lengths.tolist()


def tune_ours(run: Any, tokenizer: Any, tokens: Any, turns: Any, *, average: bool) -> None:
    """As `manyheads train init_from=<folder>` does."""
    from contestants.ours import fit_by_the_clock
    from contestants.texts import n_classes
    from manyheads.config.facts import replace_settings
    from manyheads.data.rows import Rows, Splits
    from manyheads.training.build import assemble_network

    if not average:
        run = replace_settings(run, {"optim.average": 0})
    none = Rows([], None, [], "", [])
    labels = [str(one) for one in range(n_classes(tokens))]
    network = assemble_network(run, Splits(none, none, None, labels), tokenizer)
    fit_by_the_clock(Path(tempfile.mkdtemp()), run, network, tokens, turns)


def theirs(folder: str, n_classes: int, attention: str) -> Any:
    """The model as `transformers` opens it, with a head that is new."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    return AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=n_classes, attn_implementation=attention
    )


def by_plain_loop(folder: str, tokenizer: Any, tokens: Any, turns: Any, *, by_length: bool) -> None:
    """What a course on `transformers` teaches, in bf16 where the processor computes in it."""
    import torch
    from torch.utils.data import DataLoader
    from transformers import DataCollatorWithPadding, get_linear_schedule_with_warmup
    from transformers.trainer_pt_utils import LengthGroupedSampler

    from contestants.huggingface import make_dataset, wrapped
    from contestants.texts import n_classes
    from manyheads.inference.precision import cpu_multiplies_bf16

    torch.manual_seed(0)
    rows = make_dataset(tokens)
    sampler = LengthGroupedSampler(32, lengths=tokens.lengths.tolist()) if by_length else None
    loader = DataLoader(
        rows,  # pyright: ignore[reportArgumentType]
        batch_size=32,
        shuffle=sampler is None,
        sampler=sampler,
        collate_fn=DataCollatorWithPadding(wrapped(tokenizer)),
    )
    model = theirs(folder, n_classes(tokens), "sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, N_STEPS // 10, N_STEPS)
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu_multiplies_bf16()):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        mask = batch["attention_mask"]
        turns.step(int(mask.sum()), mask.numel(), len(mask))


def by_trainer(folder: str, text: Text, tokenizer: Any, tokens: Any, turns: Any, way: Way) -> None:
    """The Trainer with the settings that a search found fastest with this model on these texts."""
    from contestants import huggingface as hf

    hf.by_trainer(opener(folder, tokens), text, tokenizer, tokens, turns, way, rate=LR)


def opener(folder: str, tokens: Any) -> Any:
    """`theirs` by its attention alone."""
    from contestants.texts import n_classes

    return lambda attention: theirs(folder, n_classes(tokens), attention)
