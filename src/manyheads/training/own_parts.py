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
    named = []
    for kind, name in model.chosen_parts():
        owner = plugin.owner(kind, name).name
        if owner in plugin.given():
            named.append(f"{kind} {name} of plugin {owner}")
    return ", ".join(named)


def check_part(run: RunConfig, network: nn.Module) -> None:
    """Refuse a network with blocks of users' plugins whose logits of a text are others alone than with others, not
    finite or without a gradient, or whose weights cannot be saved.

    Nothing is drawn from torch's generators, and the weights stay as they are. Other models than classifiers are not
    tried.

    Raises:
        UserError: names the plugins, kinds and names of the blocks that are not of the package.
    """
    if isinstance(network, OwnNetwork):
        named, own = f"network={type(network.module).__qualname__}", "it"
    elif isinstance(network, Classifier):
        named, own = own_blocks(run.model), "a block"
    else:
        return
    if not named:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        problem = _problem(deepcopy(network).eval().float())
    if problem:
        raise UserError(f"{named}: {problem}; docs/extending.md says what {own} must keep")


def _problem(network: Classifier | OwnNetwork) -> str:
    """What is wrong with the network, or ""; its weights are lost."""
    texts, segments = [], []
    reads_pairs = isinstance(network, Classifier) and network.cross is not None
    for length in LENGTHS:
        texts.append(torch.randint(network.words.num_embeddings, (length,)))
        n_first = (length + 1) // 2 if reads_pairs else length  # of a pair, half of the tokens are its second text
        segments.append((torch.arange(length) >= n_first).long())

    def packed(which: list[int]) -> Tensor:
        """The logits of some of the texts in one packed batch."""
        layout = Packed.of_lengths([LENGTHS[at] for at in which])
        return network(torch.cat([texts[at] for at in which]), layout, torch.cat([segments[at] for at in which]))

    every = list(range(len(LENGTHS)))
    together_BC = packed(every)
    if not together_BC.isfinite().all():
        return "its logits are not finite"
    alone_BC = torch.cat([packed([at]) for at in every])
    keep_BL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids_BL = torch.zeros(keep_BL.shape, dtype=torch.int64)
    segments_BL = torch.zeros(keep_BL.shape, dtype=torch.int64)
    ids_BL[keep_BL], segments_BL[keep_BL] = torch.cat(texts), torch.cat(segments)
    padded_BC = network(ids_BL, Padded(keep_BL), segments_BL)
    largest = max(1.0, float(together_BC.detach().abs().max()))
    for how, logits_BC in (("alone", alone_BC), ("in a padded batch", padded_BC)):
        difference = float((logits_BC - together_BC).detach().abs().max())
        if not difference <= TOLERANCE * largest:  # also where it is NaN
            return f"the logits of a text {how} differ by {difference:.2g} from those in a packed batch"
    if not together_BC.requires_grad:
        return "its logits have no gradient"
    together_BC.square().sum().backward()
    own = set[nn.Parameter]()
    for part in network.modules():
        if hasattr(part, "own_part"):
            own.update(part.parameters())
    for name, weight in network.named_parameters():
        if not weight.requires_grad:
            continue
        if weight.grad is None and weight in own:
            return f"its weight {name} has no gradient"
        if weight.grad is not None and not weight.grad.isfinite().all():
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
