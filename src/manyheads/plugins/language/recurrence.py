"""The settings of recurrent encoders. Standard library only."""

from typing import Any

from manyheads.config.facts import require, section, setting

NAMES = ("gru", "lstm")


@section("model.")
class RecurrenceConfig:
    """What a recurrent encoder adds to the settings of a model."""

    bidirectional: bool = setting(True, "a recurrent encoder reads both ways, each with half of d_model")


def check(model: Any) -> None:
    """What a model must keep to be read both ways, or one."""
    encoder = f"model.encoder={model.encoder}"
    if model.encoder not in NAMES:
        require(
            model.bidirectional,
            f"model.bidirectional=false is of recurrent encoders, but {encoder}: "
            "choose model.causal=true, or model.encoder=gru",
        )
        return
    require(
        not model.bidirectional or model.d_model % 2 == 0,
        f"model.d_model={model.d_model} is odd, but {encoder} reads both ways with half of it each: "
        f"use an even width such as model.d_model={model.d_model + 1}, or model.bidirectional=false",
    )
    require(
        model.bidirectional or not model.facts("pooling").get("reads_first"),
        f"model.pooling={model.pooling} reads the first token, which has seen itself alone under "
        "model.bidirectional=false: choose model.pooling=attention, or model.bidirectional=true",
    )
