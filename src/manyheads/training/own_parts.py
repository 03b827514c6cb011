"""What a block of a user's must keep for its model to be trusted, tried once before the first step."""

from collections.abc import Callable
from copy import deepcopy

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.config import ModelConfig, RunConfig
from manyheads.errors import UserError
from manyheads.layout import Packed, Padded
from manyheads.nn.classifier import Classifier, OwnNetwork

LENGTHS = (3, 1, 7, 2)  # tokens of the texts that are tried
TOLERANCE = 1e-4  # of logits of about 1, in single precision


def own_blocks(model: ModelConfig) -> str:
    """The blocks of a model that are of users' plugins, by name; empty: none is."""
    chosen = [(plugin.owner(kind, name).name, kind, name) for kind, name in model.chosen_parts()]
    return ", ".join(f"{kind} {name} of plugin {owner}" for owner, kind, name in chosen if owner in plugin.given())


def check_part(run: RunConfig, network: nn.Module) -> None:
    """Refuse a network with blocks of users' plugins whose logits of a text are others alone than with others, not
    finite or without a gradient, or whose weights cannot be saved.

    Nothing is drawn from torch's generators, and the weights stay as they are. Other models than classifiers are not
    tried.

    Raises:
        UserError: names the plugins, kinds and names of the blocks that are not of the package.
    """
    if isinstance(network, OwnNetwork):
        name = type(network.module).__qualname__
        if problem := _tried(network):
            raise UserError(f"network={name}: {problem}; docs/extending.md says what it must keep")
        return
    named = own_blocks(run.model)
    if not named or not isinstance(network, Classifier):
        return
    if problem := _tried(network):
        raise UserError(f"{named}: {problem}; docs/extending.md says what a block must keep")


def _tried(network: Classifier | OwnNetwork) -> str:
    """What is wrong with a copy of the network, or ""."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _problem(deepcopy(network).eval().float())


def _problem(network: Classifier | OwnNetwork) -> str:
    n_words = network.words.num_embeddings
    texts = [torch.randint(n_words, (length,)) for length in LENGTHS]
    if (
        isinstance(network, Classifier) and network.cross is not None
    ):  # which reads pairs: half of each text is its second
        segments = [(torch.arange(length) >= (length + 1) // 2).long() for length in LENGTHS]
    else:
        segments = [torch.zeros(length, dtype=torch.int64) for length in LENGTHS]

    def packed(which: list[int]) -> Tensor:
        layout = Packed.of_lengths([LENGTHS[at] for at in which])
        return network(torch.cat([texts[at] for at in which]), layout, torch.cat([segments[at] for at in which]))

    every = list(range(len(LENGTHS)))
    together_BC = packed(every)
    if not together_BC.isfinite().all():
        return "its logits are not finite"
    alone_BC = torch.cat([packed([at]) for at in every])
    keep_BL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids_BL, segments_BL = (torch.zeros(keep_BL.shape, dtype=torch.int64) for _ in range(2))
    ids_BL[keep_BL], segments_BL[keep_BL] = torch.cat(texts), torch.cat(segments)
    for how, logits_BC in (("alone", alone_BC), ("in a padded batch", network(ids_BL, Padded(keep_BL), segments_BL))):
        furthest = float((logits_BC - together_BC).detach().abs().max())
        if not furthest <= TOLERANCE * max(1.0, float(together_BC.detach().abs().max())):
            return f"the logits of a text {how} differ by {furthest:.2g} from those in a packed batch"
    if not together_BC.requires_grad:
        return "its logits have no gradient"
    together_BC.square().sum().backward()
    weights = {name: one for name, one in network.named_parameters() if one.requires_grad}
    own = {one for part in network.modules() if hasattr(part, "own_part") for one in part.parameters()}
    for name, one in weights.items():
        if one.grad is None and one in own:
            return f"its weight {name} has no gradient"
        if one.grad is not None and not one.grad.isfinite().all():
            return f"the gradient of {name} is not finite"
    if isinstance(network, Classifier) and network.words.weight.grad is None:
        return "no gradient comes through it to the words"
    return _problem_of_saving(network, lambda: packed(every))


def _problem_of_saving(network: nn.Module, logits: Callable[[], Tensor]) -> str:
    try:
        saved = save({name: one.contiguous() for name, one in network.state_dict().items()})
    except (RuntimeError, TypeError) as error:
        return f"its weights cannot be saved ({str(error).splitlines()[0]})"
    with torch.no_grad():
        before = logits()
        for one in network.parameters():
            one.zero_()
        network.load_state_dict(load(saved))
        if not torch.equal(logits(), before):
            return "its logits are others after its weights are saved and loaded"
    return ""
