"""What config.json asks for beside what model.safetensors holds, before any memory is taken. Standard library only."""

from pathlib import Path

from manyheads.config import ModelConfig, Pooler, Score
from manyheads.config.model import MOST_TABLE, EncoderKind
from manyheads.ship.settings import Settings


def check_size(path: Path, n_held: int, settings: Settings) -> None:
    """The file `path` of `n_held` numbers must account for the model of `settings`.

    The largest matrices are counted; what is not (keys, values, gates, biases, norms) is no larger than they are.

    Raises:
        ValueError: it does not, or tables of positions, which are not in the file, would be too large.
    """
    model = settings.model
    of_layers = sum(_least_of_layer(model, layer) for layer in range(model.n_layers + model.n_cross_layers))
    n_rows = settings.n_classes + (0 if model.pooler is Pooler.none else model.d_model)
    of_words = model.width_of_words * settings.vocab_size
    n_least = of_words + model.d_model * n_rows + of_layers
    if n_least > n_held:
        raise ValueError(f"{path} holds {n_held:,} numbers, but the model of config.json has at least {n_least:,}")
    n_table = settings.max_length * max(model.d_model, 2 * model.d_k * model.n_layers)
    if n_table > MOST_TABLE:
        raise ValueError(
            f"{path.with_name('config.json')} has max_length={settings.max_length}, which asks for tables of positions "
            f"with {n_table:,} numbers: no model of manyheads needs so many"
        )


def _least_of_layer(model: ModelConfig, layer: int) -> int:
    """Numbers in the largest matrices of layer `layer`, from 0."""
    if model.is_recurrent:
        return (4 if model.encoder is EncoderKind.lstm else 3) * model.d_model**2
    widths = model.n_heads * (model.d_k * model.project + model.d_v * model.project_output) + 2 * model.d_ff
    has_maps = model.score_of(layer) in (Score.general, Score.additive, Score.concat)
    return model.d_model * widths + model.n_heads * model.d_k**2 * has_maps
