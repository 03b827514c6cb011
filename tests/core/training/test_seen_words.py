"""Training the vectors of words that occur, against training the whole table: the same weights, to the bit."""

from shutil import copytree
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from manyheads.cli.main import main
from manyheads.config import Accelerator, BatchConfig, HardwareConfig, ModelConfig, OptimConfig, Precision, RunConfig
from manyheads.data.tokens import Tokens
from manyheads.distributed import faults
from manyheads.inference.folder import load
from manyheads.nn import assemble
from manyheads.runs.checkpoints import newest_checkpoint
from manyheads.training import build, weights
from manyheads.training.state import load_pytree
from manyheads.training.trainer import run_trainer
from manyheads.training.weights import SeenWords, only_seen_words
from tests.conftest import write_films

N_IDS = 40
SHAPE = ModelConfig(n_layers=1, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=8, dropout=0.1, dropout_tokens=0.2)


def texts(ids: list[int], n_rows: int = 12) -> Tokens:
    """Rows of three tokens among `ids`, all of which occur."""
    drawn = torch.Generator().manual_seed(len(ids))
    ids_N = torch.tensor(ids)[torch.randint(len(ids), (3 * n_rows,), generator=drawn)]
    ids_N[: len(ids)] = torch.tensor(ids)
    return Tokens(ids_N.int(), torch.arange(n_rows + 1) * 3, None, torch.arange(n_rows) % 3)


def trained(train: Tokens, clip: float, **optim: float) -> tuple[Any, Any]:
    """A network after ten steps and as it was before them; it was judged on words that `train` does not have."""
    run = RunConfig(
        model=SHAPE,
        batch=BatchConfig(rows=4),
        optim=OptimConfig(lr=1e-2, weight_decay=0.1, **optim),  # pyright: ignore[reportArgumentType]
        hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32),
        trainer={"max_epochs": -1, "max_steps": 10, "val_check_interval": 2, "gradient_clip_val": clip},
    )
    torch.manual_seed(1)
    network, before = (assemble(SHAPE, vocab_size=N_IDS, n_classes=3, max_length=4) for _ in range(2))
    before.load_state_dict(network.state_dict())
    tokens = {"train": train, "validation": texts(list(range(N_IDS)), 20)}
    run_trainer(run, network, tokens, ["a", "b", "c"], [])
    return network, before


@settings(max_examples=settings.default.max_examples // 5)  # each trains twice
@given(
    ids=st.lists(st.integers(0, N_IDS - 1), min_size=1, max_size=30, unique=True),
    average=st.sampled_from([0, 3]),
    layer_decay=st.sampled_from([1.0, 0.5]),
    freeze=st.sampled_from([0, 1]),
)
def test_weights_are_those_of_training_the_whole_table(ids, average, layer_decay, freeze):
    given_ = {"average": average, "layer_decay": layer_decay, "freeze": freeze}
    network, before = trained(texts(ids), 0.0, **given_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "MOST_SEEN", 0.0)
        whole, _ = trained(texts(ids), 0.0, **given_)
    for name, weight in whole.state_dict().items():
        assert network.state_dict()[name].equal(weight), name
    same_V = (network.words.weight == before.words.weight).all(1)
    assert {row for row in range(N_IDS) if not same_V[row]} <= (set() if freeze else set(ids))


def test_with_clipping_the_norm_alone_is_rounded_otherwise():
    """It is a sum of as many squares, less those that are zero."""
    network, _ = trained(texts([1, 5, 6, 7, 30]), 0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "MOST_SEEN", 0.0)
        whole, _ = trained(texts([1, 5, 6, 7, 30]), 0.1)
    torch.testing.assert_close(network.state_dict(), whole.state_dict(), rtol=0, atol=1e-5)


@given(
    rows=st.lists(st.integers(0, N_IDS - 1), min_size=1, unique=True),
    ids=st.lists(st.integers(0, N_IDS - 1), min_size=1, max_size=9),
)
def test_vectors_and_gradients_are_those_of_the_table(rows, ids):
    table, rows_U = nn.Embedding(N_IDS, 3), torch.tensor(sorted(rows))
    seen, ids_N = SeenWords(table, rows_U), torch.tensor(ids)
    assert seen(ids_N).equal(F.embedding(ids_N, table.weight))
    of_tokens_ND = torch.randn(len(ids), 3)
    seen(ids_N).backward(of_tokens_ND)
    table(ids_N).backward(of_tokens_ND)
    assert seen.weight.grad is not None
    assert table.weight.grad is not None
    assert seen.weight.grad.equal(table.weight.grad[rows_U])


def test_where_most_words_occur_and_in_other_networks_the_table_is_trained():
    network = assemble(SHAPE, vocab_size=N_IDS, n_classes=3, max_length=4)
    table = network.words
    with only_seen_words(network, texts(list(range(31)))):
        assert network.words is table
    with only_seen_words(network, texts(list(range(30)))):
        assert network.words.weight.shape == (30, 8)
    assert network.words is table
    with only_seen_words(nn.Linear(2, 2), texts([1])):
        pass


def test_a_run_that_was_stopped_goes_on_with_the_words_that_occur(tmp_path, model_folder, monkeypatch, capsys):
    """With the bits of one that was not stopped, and with moments of these words alone in its checkpoint; so the others
    have to be as they were."""
    monkeypatch.setattr(weights, "MOST_SEEN", 1.0)  # the tokenizer has few words that do not occur
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    source = copytree(model_folder, tmp_path / "source")
    data = [f"data.path={write_films(tmp_path)}", f"init_from={source}", "hardware=cpu", "test=false"]
    words = ["train", *data, "hardware.precision=fp32", "trainer.max_epochs=2", "batch.rows=8", "checkpoint.every=3"]

    assert main([*words, f"output={tmp_path / 'whole'}"]) == 0
    faults.reset_counts()
    monkeypatch.setenv(faults.VARIABLE, "step:7:term")
    assert main([*words, f"output={tmp_path / 'parts'}"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    checkpoint = newest_checkpoint(tmp_path / "parts" / "checkpoints")
    assert checkpoint is not None
    n_seen = len(load_file(checkpoint / "weights.safetensors")["network.embeddings.words.weight"])
    assert n_seen < 15
    (optimizer,) = load_pytree(checkpoint / "state.safetensors")["optimizers"]
    assert n_seen in {len(its["exp_avg"]) for its in optimizer["state"].values()}
    began_with = source / "model" / "model.safetensors"
    content = began_with.read_bytes()
    save_file({name: weight + 1 for name, weight in load_file(began_with).items()}, began_with)
    assert main(["train", f"resume={tmp_path / 'parts'}"]) == 2
    assert capsys.readouterr().err.endswith(
        f"init_from names other content than the run of {checkpoint} began with: give the same files, or start a new "
        "run in another folder\n"
    )
    began_with.write_bytes(content)
    assert main(["train", f"resume={tmp_path / 'parts'}"]) == 0
    whole, parts = (load(tmp_path / name).network for name in ("whole", "parts"))
    for name, weight in whole.state_dict().items():
        assert parts.state_dict()[name].equal(weight), name
    assert whole.words.weight.shape[0] == 15


def test_a_table_is_as_frozen_within_the_block_as_around_it():
    network = assemble(SHAPE, vocab_size=N_IDS, n_classes=3, max_length=4)
    with only_seen_words(network, texts([1])):
        network.words.weight.requires_grad_(False)
    assert not network.words.weight.requires_grad
    with only_seen_words(network, texts([1])):
        assert not network.words.weight.requires_grad


@pytest.mark.parametrize("change", ["trained", "others", "moved others", "moved"])
def test_a_plugin_may_change_the_vectors_that_are_saved_alone(change, monkeypatch):
    """Others would be lost where the run is resumed."""
    network = assemble(SHAPE, vocab_size=N_IDS, n_classes=3, max_length=4)
    tokens = texts([1, 2])

    def begin(*_: Any, first: bool) -> None:
        assert first
        with torch.no_grad():
            if change.startswith("moved"):  # to a GPU and back
                network.words.all_VD = network.words.all_VD.clone()
            if change.endswith("others"):
                network.words.all_VD[7] += 1
            network.words.weight[1] += 1

    monkeypatch.setattr(build, "hooks", lambda run, name: [begin])
    run = RunConfig(task="pretrain", model=SHAPE)
    with only_seen_words(network, tokens):
        if change.endswith("others"):
            with pytest.raises(ValueError, match=r"begin of a plugin changes vectors .* which no checkpoint holds"):
                build.prepare_weights(run, network, tokens, ["a"], first=True)
        else:
            build.prepare_weights(run, network, tokens, ["a"], first=True)
