"""Settings that were typed but would change nothing: said, not swallowed."""

from collections.abc import Mapping
from typing import Any

from manyheads.config import DataConfig, EvaluateConfig, Long, RunConfig, Source, Task, TuneConfig
from manyheads.config.plain import show
from manyheads.door.verbs import OF_ANSWERS, Config

OF_THE_HUB = ("data.hub_config", "data.revision")
OF_CLASSES = (
    "linear",
    *("data.label", "data.text_pair", "optim.class_weights"),
    *("model.pooling", "model.pooler", "model.pair", "model.segments"),
    "model.matches",
)
OF_TARGETS = ("data.target",)
UNREAD = {Task.classify: OF_TARGETS, Task.seq2seq: OF_CLASSES, Task.pretrain: OF_ANSWERS}
OF_TRANSFORMERS = tuple(
    f"model.{name}"
    for name in ("n_heads", "d_k", "d_v", "d_ff", "activation", "norm", "norm_eps", "norm_bias", "placement")
)


def refuse_idle(config: Config, typed: Mapping[str, Any]) -> None:
    """Refuse a typed setting that nothing would read: of data, where `evaluate` reads the run's own; of the other
    task; of layers that a recurrent encoder has not; of a job of SLURM, where none is written; of the hub, where no
    dataset of it is read.

    Raises:
        ValueError: names the first such setting.
    """
    if isinstance(config, EvaluateConfig) and config.data.source is Source.run and not config.data.path:
        for name, value in typed.items():
            if name.startswith("data.") and name != "data.source":
                raise ValueError(
                    f"{name}={show(value)} does nothing here, where evaluate reads the run's own data as training "
                    "read it: name other data by data.path=, data.hub= or data=<preset>, or leave it away"
                )
    if isinstance(config, RunConfig):
        for name in UNREAD[config.task]:
            if name in typed:
                raise ValueError(f"{name}={show(typed[name])} does nothing with task={config.task.name}: leave it away")
        for name in OF_TRANSFORMERS if config.model.is_recurrent else ():
            if name in typed:
                encoder = f"model.encoder={config.model.encoder.name}"
                raise ValueError(f"{name}={show(typed[name])} does nothing with {encoder}: leave it away")
    _refuse_without_hiding(config, typed)
    _refuse_without_windows(config, typed)
    _refuse_without_teacher(config, typed)
    _refuse_without_script(config, typed)
    for name in OF_THE_HUB:
        if typed.get(name):
            _refuse_without_hub(f"{name}={show(typed[name])}", config)


def _refuse_without_hiding(config: Config, typed: Mapping[str, Any]) -> None:
    """What is hidden, where nothing is."""
    if isinstance(config, RunConfig) and config.task is not Task.pretrain and not config.pretrain.before:
        for name in typed:
            if name.startswith("pretrain.") and name != "pretrain.before":
                raise ValueError(
                    f"{name}={show(typed[name])} does nothing with task={config.task.name}: use manyheads pretrain, or "
                    "experiment=self_pretrain"
                )


def _refuse_without_windows(config: Config, typed: Mapping[str, Any]) -> None:
    """How windows lie, where texts are not read in windows."""
    data = getattr(config, "data", None)
    for name in ("data.stride", "data.windows"):
        if name in typed and isinstance(data, DataConfig) and data.long is not Long.windows:
            raise ValueError(
                f"{name}={show(typed[name])} does nothing with data.long={data.long.name}: add data.long=windows, or "
                "leave it away"
            )


def _refuse_without_teacher(config: Config, typed: Mapping[str, Any]) -> None:
    """How much of a teacher is learned, where there is none."""
    for name in ("optim.teacher_weight", "optim.teacher_temperature"):
        if name in typed and isinstance(config, RunConfig | TuneConfig) and not config.teacher:
            raise ValueError(
                f"{name}={show(typed[name])} does nothing without teacher=<run>: add that, or leave it away"
            )


def _refuse_without_script(config: Config, typed: Mapping[str, Any]) -> None:
    """What a job of SLURM is told, where none is written."""
    for name in typed if isinstance(config, RunConfig) and not config.slurm.script else ():
        if name.startswith("slurm.") and name != "slurm.script":
            raise ValueError(
                f"{name}={show(typed[name])} does nothing without hardware=slurm: add that, or leave it away"
            )


def _refuse_without_hub(setting: str, config: Any) -> None:
    """A setting of the hub where local files or the demo are read."""
    if config.data.path:
        raise ValueError(
            f"{setting} does nothing beside data.path={config.data.path}, which is read instead of the Hugging Face "
            "hub: leave one of them away"
        )
    if config.data.source is not Source.hub:
        raise ValueError(
            f"{setting} does nothing here, where data={config.data.source.name} is read: name a dataset of the "
            "Hugging Face hub by data.hub=, or leave it away"
        )
