"""The flags of Lightning's Trainer that may be typed, as `trainer.FLAG=VALUE`. Standard library only."""

from types import NoneType
from typing import Any

from manyheads.config.conversion import require_plain
from manyheads.config.facts import nearest
from manyheads.config.sentences import format_value
from manyheads.errors import UserError

TRAINER_FLAGS: dict[str, tuple[type, ...]] = {  # and the types of their values; a test compares them with Lightning's
    "max_epochs": (int, NoneType),
    "min_epochs": (int, NoneType),
    "max_steps": (int,),
    "max_time": (str, dict, NoneType),
    "limit_val_batches": (int, float, NoneType),
    "val_check_interval": (int, float, str, dict, NoneType),
    "check_val_every_n_epoch": (int, NoneType),
    "gradient_clip_val": (int, float, NoneType),
    "gradient_clip_algorithm": (str, NoneType),
    "deterministic": (bool, str, NoneType),
    "benchmark": (bool, NoneType),
    "inference_mode": (bool,),
    "profiler": (str, NoneType),
    "detect_anomaly": (bool,),
    "sync_batchnorm": (bool,),
    "enable_autolog_hparams": (bool,),
    "model_registry": (str, NoneType),
}
OUR_FLAGS = {  # flags that other settings stand for
    "accelerator": "set hardware.accelerator",
    "devices": "set hardware.devices",
    "num_nodes": "set hardware.nodes",
    "strategy": "set hardware.strategy",
    "precision": "set hardware.precision",
    "accumulate_grad_batches": "set batch.accumulate",
    "logger": "choose loggers by logger=NAME",
    "log_every_n_steps": "set logger.every",
    "default_root_dir": "set output",
    "callbacks": "set checkpoint.metric and checkpoint.patience",
    "enable_checkpointing": "set checkpoint.metric and checkpoint.patience",
    "enable_progress_bar": "manyheads draws its own",
    "enable_model_summary": "use dry=true",
    "num_sanity_val_steps": "manyheads checks the data first",
    "use_distributed_sampler": "manyheads shares out the rows",
    "reload_dataloaders_every_n_epochs": "manyheads shares out the rows",
    "plugins": "set hardware.precision and hardware.strategy",
    "barebones": "manyheads needs the figures it leaves out",
    "fast_dev_run": "use debug=fast",
    "overfit_batches": "use debug=overfit",
    "min_steps": "set trainer.max_epochs or trainer.max_steps",
    "limit_train_batches": "set data.rows, or trainer.max_steps",
    "limit_test_batches": "set test=false, or data.rows",
    "limit_predict_batches": "manyheads predict answers every row",
}
END_FLAGS = ("max_epochs", "max_steps")  # of how long a run trains
WARNED_FLAGS = (  # others make another model of a resumed run, as is meant; all further flags but max_time are refused
    *(*END_FLAGS, "gradient_clip_val", "gradient_clip_algorithm"),
    *("val_check_interval", "check_val_every_n_epoch", "limit_val_batches"),
)


def default_trainer() -> dict[str, Any]:
    """Lightning Trainer flags that differ from Lightning's own defaults."""
    return {"max_epochs": 30, "max_steps": 2500, "gradient_clip_val": 1.0}


def checked_flag(name: str, value: Any) -> Any:
    """The value of `trainer.<name>`.

    Raises:
        UserError: Lightning has no such flag, another setting takes its place, or the type is wrong.
    """
    typed = f"trainer.{name}={format_value(value)}"
    if name in OUR_FLAGS:
        raise UserError(f"{typed}: this flag is decided elsewhere: {OUR_FLAGS[name]}")
    if name not in TRAINER_FLAGS:
        near = nearest(name, TRAINER_FLAGS)
        remedy = f"did you mean trainer.{near}?" if near else "see the signature of lightning.pytorch.Trainer"
        raise UserError(f"{typed} is not a flag of Lightning's Trainer: {remedy}")
    kinds = TRAINER_FLAGS[name]
    if isinstance(value, float) and value.is_integer() and float not in kinds:
        value = int(value)  # 1e4
    value = require_plain(f"trainer.{name}", value)
    holds = type(value) in kinds or (type(value) is int and float in kinds)  # a bool is an int, too, but not here
    if not holds:
        words = ["null" if kind is NoneType else kind.__name__ for kind in kinds]
        raise UserError(f"{typed} has the wrong type: Lightning takes {' or '.join(words)}")
    return value


def check_training(trainer: dict[str, Any]) -> None:
    """Training must end after some epochs or steps, since the learning rate falls towards that end; validation must
    read all of its rows or none, and come by steps: by the clock a resumed run would choose among other weights."""
    if all(trainer.get(limit) in (None, -1) for limit in ("max_epochs", "max_steps")):
        raise UserError("trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them")
    for name in END_FLAGS:
        value = trainer.get(name)
        if value is not None and (value == 0 or value < -1):
            raise UserError(f"trainer.{name}={value} trains nothing: give 1 or more, or -1 for no such limit")
    limit, interval = trainer.get("limit_val_batches"), trainer.get("val_check_interval")
    if isinstance(interval, str | dict) or (interval is not None and interval <= 0):
        raise UserError(
            f"trainer.val_check_interval={format_value(interval)} is not an interval in steps: give a share of an "
            "epoch, such as 0.5, or a number of batches"
        )
    if not reads_all_or_none(limit):
        raise UserError(
            f"trainer.limit_val_batches={format_value(limit)} would judge epochs by the longest texts alone, which "
            "validation reads first: remove it, or give fewer rows by data.validation_share or data.rows"
        )


def reads_all_or_none(limit: Any) -> bool:
    """Whether a limit of batches, as Lightning's Trainer takes it, leaves out nothing or everything: 1 is one batch and
    1.0 all of them."""
    return limit in (None, 0) or (isinstance(limit, float) and limit == 1.0)
