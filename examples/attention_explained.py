"""What is said of attention, measured. Read it from top to bottom, or run it:

    python examples/attention_explained.py docs/pictures         # the figures of docs/attention.md, about 5 minutes
    python examples/attention_explained.py outputs/attention quick  # the same with few samples and steps

Each section measures a claim on the blocks of `manyheads` and returns a sentence and figures for attention.json.

B documents . T tokens of a text . M keys . R queries . H heads . K d_k . V d_v . D d_model . Y depths . S sentences
"""

import json
import math
import random
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import manyheads
from manyheads.config import ModelConfig
from manyheads.data.formats.demo import demo_splits
from manyheads.layout import Packed
from manyheads.nn import MultiHeadAttention, assemble, attend, attention_weights
from manyheads.nn.attention import Dot

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/attention")
SAMPLES, REPEATS, LENGTHS, STEPS, SEEDS, ROWS = 20_000, 9, (64, 128, 256, 512, 1024, 2048, 4096), 800, 3, 4000
if "quick" in sys.argv:
    SAMPLES, REPEATS, LENGTHS, STEPS, SEEDS, ROWS = 2000, 1, (64, 128, 256), 2, 1, 400

# 1. The formula, a token a row: head_i = softmax(Q_i K_iᵀ / √d_k) V_i with Q_i = X W_i^Q, and so K_i and V_i;
#    Y = [head_1 ... head_h] W^O. Vaswani et al. (2017), sections 3.2.1 and 3.2.2.


def transcribe(x_TD, w_q_HDK, w_k_HDK, w_v_HDV, w_o) -> dict[str, np.ndarray]:
    """Every matrix of head 1, then those of all heads together."""
    steps, heads = {}, []
    for w_q, w_k, w_v in zip(w_q_HDK, w_k_HDK, w_v_HDV, strict=True):
        q, k, v = x_TD @ w_q, x_TD @ w_k, x_TD @ w_v
        scores = q @ k.T / math.sqrt(q.shape[1])
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))  # the shift changes no weight and cannot overflow
        weights = powers / powers.sum(axis=1, keepdims=True)
        heads.append(weights @ v)
        steps = steps or {"Q_1": q, "K_1": k, "V_1": v, "A_1": weights, "Z_1": heads[0]}
    z = np.concatenate(heads, axis=1)
    return {**steps, "Z": z, "Y": z @ w_o}


@torch.no_grad()
def formula():
    n_tokens, d_model, n_heads, d_k, d_v = 7, 16, 4, 6, 5  # all different, so that a shape tells which it is
    torch.manual_seed(0)
    layer = MultiHeadAttention(d_model=d_model, n_heads=n_heads, d_k=d_k, d_v=d_v, bias=False)
    x_TD, layout = torch.randn(n_tokens, d_model), Packed.of_lengths([n_tokens])
    stacked = layer.project.weight.split(layer.widths)  # W^Q of all heads, their W^K, their W^V, each transposed
    w_q, w_k, w_v = (weight.unflatten(0, (n_heads, -1)).mT.numpy() for weight in stacked)
    steps = transcribe(x_TD.numpy(), w_q, w_k, w_v, layer.output.weight.T.numpy())
    weights_BHTT, contexts_BHTV = layer.maps(x_TD, layout)
    ours = {"A_1": weights_BHTT[0, 0], "Z_1": contexts_BHTV[0, 0], "Y": layer(x_TD, layout)}
    worst = max(float(np.abs(ours[step].numpy() - steps[step]).max()) for step in ours)
    # Without any projection, softmax(X Xᵀ / √d) X, a token mostly copies itself: x · x is near d, x · y near 0.
    x_BHTD = torch.randn(50, 1, n_tokens, 64)
    itself = float(attention_weights(x_BHTD, x_BHTD).diagonal(dim1=-2, dim2=-1).mean())
    says = f"the blocks and the transcribed formula differ by {worst:.0e} at most"
    return says, {"largest_difference": worst, "weight_on_itself": itself}


# 2. "Without 1 / √d_k the softmax saturates": q · k of independent standard normals has mean 0 and variance d_k.


def scale():
    torch.manual_seed(0)
    widths = {}
    for d_k in (4, 16, 64, 256, 1024):
        q, k = (torch.randn(SAMPLES, d_k) for _ in range(2))
        dots = (q * k).sum(-1)
        error = math.sqrt(d_k / SAMPLES)
        widths[d_k] = {"mean": float(dots.mean()), "mean_error": error, "variance": float(dots.var())}
        widths[d_k]["mean_of_q_with_itself"] = float((q * q).sum(-1).mean())
        widths[d_k] |= {"with_scale": saturation(d_k, d_k**-0.5), "without": saturation(d_k, 1.0)}
    dead = [widths[1024][which]["dead_share"] for which in ("without", "with_scale")]
    return f"at d_k 1024 {dead[0]:.0%} of softmaxes are saturated without the scale, {dead[1]:.0%} with it", widths


def saturation(d_k, factor):
    """Entropy (nats) of the softmax over 64 keys, and norms of its Jacobian by the scores and by the query."""
    entropies, by_scores, by_query = [], [], []
    for _ in range(SAMPLES // 500):
        q_RK, k_MK = (torch.randn(n, d_k) for n in (50, 64))
        weights_RM = attention_weights(q_RK[None, None], k_MK[None, None], score=Dot(scale=factor))[0, 0]
        jacobian_RMM = weights_RM.diag_embed() - weights_RM[:, :, None] * weights_RM[:, None, :]  # diag(w) - w wᵀ
        entropies.append(torch.special.entr(weights_RM).sum(-1))
        by_scores.append(jacobian_RMM.flatten(1).norm(dim=1))
        by_query.append(factor * (jacobian_RMM @ k_MK).flatten(1).norm(dim=1))  # the scores are factor · K q
    norms, query_norms = torch.cat(by_scores), torch.cat(by_query)
    found = {"entropy": torch.cat(entropies).mean(), "jacobian_median": norms.median(), "jacobian_mean": norms.mean()}
    found["dead_share"] = (norms < 0.01).float().mean()  # .01 more of a score moves no weight by more than .0001
    found |= {"query_gradient_median": query_norms.median(), "query_gradient_mean": query_norms.mean()}
    return {name: float(figure) for name, figure in found.items()}


# 3. "Attention does not see order": encoder(P X) = P encoder(X) for any permutation P, unless something breaks it.

CASES = {"no positions": {}, "causal mask": {"causal": True}, "window": {"window": 2}}
CASES |= {name: {"positions": name} for name in ("sinusoidal", "learned", "rotary", "alibi")}


@torch.no_grad()
def order():
    """Largest |encoder(P X) - P encoder(X)| of an untrained encoder over 20 orders of 16 tokens, where words change
    places, and where vectors do, which take the position that was added to them along."""
    found = {}
    for case, settings in CASES.items():
        torch.manual_seed(0)
        model = ModelConfig(**{"n_layers": 2, "positions": "none", **settings})
        network = assemble(model, vocab_size=50, n_classes=4, max_length=16).double().eval()
        ids_T, layout = torch.randint(50, (16,)), Packed.of_lengths([16])
        embedded_TD = network.embeddings(ids_T, layout)
        encoded_TD = network.encoder(embedded_TD, layout)
        found[case] = {"words": 0.0, "vectors": 0.0}
        for _ in range(20):
            order_T = torch.randperm(16)
            permuted = {"words": network.embeddings(ids_T[order_T], layout), "vectors": embedded_TD[order_T]}
            for what, permuted_TD in permuted.items():
                gap_TD = network.encoder(permuted_TD, layout) - encoded_TD[order_T]
                found[case][what] = max(found[case][what], float(gap_TD.abs().max()))
    blind, sees = found["no positions"]["words"], found["sinusoidal"]["words"]
    return f"permuted words change the encoder by {blind:.0e} without positions, by {sees:.1f} with sinusoidal", found


# 4. "h heads of width d / h cost as much as one head of width d": true of parameters and matrix products.
# 5. "Attention costs T²": time does, unless it looks no further than a window; memory need not.


def cost(forwards, repeats):
    """Of a training step, forward and backward: milliseconds of processor time (the median), and MiB that autograd
    keeps for the backward pass. Steps take turns, so that a slow moment falls on all alike."""
    torch.set_num_threads(1)
    seconds, found, sizes = {name: [] for name in forwards}, {}, {}

    def note(saved):
        sizes[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
        return saved

    for name, (forward, *inputs) in forwards.items():  # a warm-up, too
        sizes.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            forward(*inputs).sum().backward()
        found[name] = {"mebibytes": sum(sizes.values()) / 2**20}
    for _ in range(repeats):
        for name, (forward, *inputs) in forwards.items():
            started = process_time()
            forward(*inputs).sum().backward()
            seconds[name].append(process_time() - started)
            found[name]["milliseconds"] = 1000 * float(np.median(seconds[name]))
    return found


def heads():
    """One layer of d_model 256, 512 tokens in texts of 64 and of 256."""
    layers, found = {n: MultiHeadAttention(d_model=256, n_heads=n) for n in (1, 4, 8, 16, 64)}, {}
    for n_tokens in (64, 256):
        x_BTD = torch.randn(512 // n_tokens, n_tokens, 256, requires_grad=True)
        found[n_tokens] = cost({n_heads: (layer, x_BTD) for n_heads, layer in layers.items()}, REPEATS)
        for n_heads, layer in layers.items():
            with FlopCounterMode(display=False) as counter:  # counts matrix products
                layer(x_BTD)
            found[n_tokens][n_heads]["flops"] = counter.get_total_flops()
            found[n_tokens][n_heads]["parameters"] = sum(weight.numel() for weight in layer.parameters())
    slower = found[256][64]["milliseconds"] / found[256][1]["milliseconds"]
    return f"64 heads have the parameters and products of one, and take {slower:.1f} times as long", found


def length():
    """One layer of d_model 128, 2 heads, one text of T tokens."""
    layer, local = (MultiHeadAttention(d_model=128, n_heads=2, window=window) for window in (0, 64))

    def textbook(x_TD, layout):  # `layer` with every weight written down
        q, k, v = layer.queries_keys_values(x_TD, None, layout, layout)
        context_BHTV = attend(*(layout.grid(one).transpose(1, 2) for one in (q, k, v)))
        return layer.output(context_BHTV.transpose(1, 2).flatten(-2))

    found, powers = {}, {}
    for n_tokens in LENGTHS:
        given = torch.randn(n_tokens, 128, requires_grad=True), Packed.of_lengths([n_tokens])
        forwards = {"textbook": (textbook, *given), "fused": (layer, *given), "window": (local, *given)}
        found[n_tokens] = cost(forwards, max(1, min(REPEATS, REPEATS * 512 // n_tokens)))
    tail = LENGTHS[-3:]
    for kind in ("textbook", "fused", "window"):
        for figure in ("milliseconds", "mebibytes"):  # the slope between logarithms is the power of T
            values = [found[n_tokens][kind][figure] for n_tokens in tail]
            powers[f"{figure} of {kind}"] = float(np.polyfit(np.log(tail), np.log(values), deg=1)[0])
    says = f"memory grows with T to the power {powers['mebibytes of textbook']:.1f} by the formula"
    return says, {"lengths": found, "powers": powers}


# 6. "The vector of a word takes up its context": "check" and "station" of the demo, whose label is their sense.


def train_small(rows, seed, *words):
    """Two layers of four heads, trained on `rows`: (text, label) of train, validation and test."""
    words += ("model.n_layers=2", "model.d_model=64", "model.d_k=16", "model.d_v=16", "model.d_ff=128", "optim.lr=2e-3")
    words += ("hardware=cpu", "hardware.precision=fp32", "trainer.max_epochs=1000", f"trainer.max_steps={STEPS}")
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()):  # the figures are printed by each section
        run = manyheads.compose(
            "train", [f"output={folder}/run", f"seed={seed}", "linear=false", "model.dropout=0", *words]
        )
        summary = manyheads.train(run, data=manyheads.TextData.from_rows(**rows, run=run))
        cheap = max(figures["accuracy"].value for figures in summary.baselines.values())
        figures = {"test_accuracy": summary.test["accuracy"].value, "cheap_accuracy": cheap, "steps": summary.steps}
        return manyheads.load(f"{folder}/run"), figures


@torch.no_grad()
def look(model, text):
    """The tokens; their vectors below and above each layer, `(Y, T, D)`; the weights of each layer, `(Y, H, T, T)`."""
    ids = model.tokenizer.encode(text)
    network, layout, weights = model.network, Packed.of_lengths([len(ids)]), []
    x_TD = network.embeddings(torch.tensor(ids.ids), layout)
    vectors = [x_TD]
    for layer in network.encoder.layers:
        weights_BHTT, _ = layer.attention.block.maps(layer.attention.before(x_TD), layout)
        x_TD = layer(x_TD, layout)
        weights.append(weights_BHTT[0])
        vectors.append(x_TD)
    vectors[-1] = network.encoder.norm(x_TD)
    return ids.tokens, torch.stack(vectors), torch.stack(weights)


def senses():
    rows = {split: of_split[: ROWS // 4 if split == "test" else ROWS] for split, of_split in demo_splits(0).items()}
    regularised = ("model.dropout_tokens=0.1", "optim.average=300", "optim.label_smoothing=0.1")
    model, figures = train_small(rows, 0, *regularised)
    found = {"training": figures}
    for word in ("check", "station"):
        about = [(text, label) for text, label in rows["test"] if label.startswith(word)]
        found[word] = {"sentences": len(about), "word": agreement(model, about, word)}
        found[word]["full stop"] = agreement(model, about, ".")  # a control: it has no sense
    last = found["check"]["word"]["layer 2"]
    return f'two "check" have cosine {last["same"]:.2f} in one sense, {last["other"]:.2f} in different ones', found


def agreement(model, rows, token):
    """Mean cosine of the token's vectors in sentences of the same sense and of different senses, and how often the
    nearest other vector is of the same sense (1/3 by chance)."""
    vectors, labels = [], np.array([label for _, label in rows])
    for text, _ in rows:
        tokens, vectors_YTD, _ = look(model, text)
        vectors.append(F.normalize(vectors_YTD[:, tokens.index(token)], dim=-1))
    vectors_YSD, found = torch.stack(vectors, dim=1), {}
    same_SS, itself_SS = torch.from_numpy(labels[:, None] == labels), torch.eye(len(rows), dtype=torch.bool)
    for depth, cosines_SS in zip(("embedding", "layer 1", "layer 2"), vectors_YSD @ vectors_YSD.mT, strict=True):
        nearest_S = cosines_SS.masked_fill(itself_SS, -2).argmax(1)
        same, other = cosines_SS[same_SS & ~itself_SS].mean(), cosines_SS[~same_SS].mean()
        shares = same_SS[torch.arange(len(rows)), nearest_S].float().mean()
        found[depth] = {"same": float(same), "other": float(other), "nearest": float(shares)}
    return found


# 7. "Words that belong together attend to each other": a made task that no bag of words solves. Which bond of a
#    sentence is broken? Every word is as frequent where its bond holds as where it is broken.

BONDS = {
    "place": "train station, ship harbour, plane airport, bus depot, car garage, horse stable, rocket pad, tram stop",
    "pronoun": "Jane she, Anna she, Mary she, Lucy she, Nina she, John he, Paul he, Mark he, Peter he, David he",
    "origin": "pasta Italy, sushi Japan, tacos Mexico, curry India, quiche France, paella Spain, goulash Hungary",
}
TEMPLATES = (
    "the {place[0]} left the {place[1]} {time}",
    "{time} the {place[0]} reached the {place[1]}",
    "the {place[1]} was empty when the {place[0]} came {time}",
    "{time} {pronoun[0]} is hungry, and {pronoun[1]}'s really craving {origin[0]} from {origin[1]}",
    "{time} {pronoun[0]} was hungry, so {pronoun[1]} ordered {origin[0]} from {origin[1]}",
)
TIMES = ("on time", "at noon", "before dawn", "an hour late", "last night", "after lunch", "today", "on Monday")
HOW = ("", " in the rain", " in the snow", " without a word", " once more", " as ever", " at last", " in a hurry")
ASKED = {  # the sentences of two tutorials, which are not trained on, and pairs of their words
    "the train left the station on time": ("train station", "station train", "train on"),
    "Jane is hungry, and she's really craving pasta from Italy": ("she jane", "jane she", "jane hungry", "pasta italy"),
}
CHANGED = ("the ship left the station on time", "Jane is hungry, and he's really craving pasta from Italy")


def make_sentence(rng):
    """A sentence and its label: the bond that is broken, or "fits"."""
    template, filled = rng.choice(TEMPLATES), {"time": rng.choice(TIMES) + rng.choice(HOW)}
    bonds = [bond for bond in BONDS if f"{bond}[0]" in template]
    label = rng.choice(["fits", *bonds])
    for bond in bonds:
        pairs = [pair.split() for pair in BONDS[bond].split(", ")]
        word, partner = rng.choice(pairs)
        if bond == label:
            partner = rng.choice([other for _, other in pairs if other != partner])
        filled[bond] = (word, partner)
    return template.format(**filled), label


def relations():
    rng, sentences = random.Random(0), {}  # noqa: S311 - sentences, not secrets
    while len(sentences) < ROWS:  # no sentence occurs twice
        text, label = make_sentence(rng)
        sentences[text] = label
    made = [(text, label) for text, label in sentences.items() if text not in ASKED]
    first, second = ROWS * 8 // 10, ROWS * 9 // 10
    rows = {"train": made[:first], "validation": made[first:second], "test": made[second:]}
    trained = [
        train_small(rows, seed, "model.dropout_tokens=0") for seed in range(SEEDS)
    ]  # which differ in their seed alone
    model, found = trained[0][0], {"training": [figures for _, figures in trained], "answers": {}, "weights": {}}
    for text in (*ASKED, *CHANGED):
        answer = model.predict([text])[0]
        found["answers"][text] = {"label": answer.label, "probability": answer.probabilities[answer.label]}
    for at, (text, pairs) in enumerate(ASKED.items()):
        for pair in pairs:  # of each seed and layer what the head that gives most gives
            found["weights"][pair] = []
            for one, _ in trained:
                tokens, _, weights_YHTT = look(one, text)
                query, key = (tokens.index(word) for word in pair.split())
                found["weights"][pair].append(weights_YHTT[:, :, query, key].amax(1).tolist())
        tokens, _, weights_YHTT = look(model, text)
        figure = Figure(figsize=(13, 7), layout="constrained")
        for layer, panels in enumerate(figure.subplots(2, 4)):
            for head, axes in enumerate(panels):
                axes.imshow(weights_YHTT[layer, head], "Blues", vmin=0, vmax=1)
                axes.set(title=f"layer {layer + 1}, head {head + 1}", yticks=range(len(tokens)), yticklabels=tokens)
                axes.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right")
        figure.savefig(FOLDER / f"attention-{('train', 'jane')[at]}.png", dpi=110)
    figures = found["training"][0]
    says = f"{figures['test_accuracy']:.3f} right, {figures['cheap_accuracy']:.3f} by the better cheap model"
    return says, found


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    figures = {}
    for section in (formula, scale, order, heads, length, senses, relations):
        says, figures[section.__name__] = section()
        print(f"{section.__name__}: {says}", flush=True)
        (FOLDER / "attention.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
