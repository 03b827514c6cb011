"""Runs that are ready to train."""

import pytest


@pytest.fixture
def small_run(tmp_path, monkeypatch):
    """`small_run(verb, *words)`: settings, network, tokens and labels of a run of the demo, ready to train."""
    from manyheads.cli.compose import compose
    from manyheads.data.prepare_tokens import prepare_tokens
    from manyheads.data.sources import read_rows
    from manyheads.training.build import assemble_network

    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path))
    monkeypatch.setattr("manyheads.training.budget.LEAST_TIMED", 0.3)

    def made(verb, *words):
        run = compose(verb, ["debug=fast", "hardware=cpu", "hardware.precision=fp32", *words])
        splits = read_rows(run, with_test=False)
        tokenizer, tokens = prepare_tokens(splits, run)
        return run, assemble_network(run, splits, tokenizer), tokens, splits.labels

    return made
