"""How the families name what our blocks hold: one table each, read from right to left to load, back to save."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of the modules of one family, as in its class ForSequenceClassification.

    Attributes:
        inside: what stands before the names of the encoder, unless a file holds the encoder alone.
        modules: our module to theirs; `*` is the number of a layer, ` + ` joins those that lie side by side in ours.
        others: beginnings of names that are heads of this or another task: what is not asked for is left alone.
        segments: their table of segments, which is added to the positions where it has but one row.
        computed: ends of names of what follows from config.json.
    """

    inside: str
    modules: dict[str, str]
    others: tuple[str, ...]
    segments: str = ""
    computed: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")


def _of_bert(inside: str, *, pooler: str, head: str) -> dict[str, str]:
    """The names that BERT, RoBERTa and ELECTRA share, but for the word in front."""
    names = {
        "embeddings.words": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.segments": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.*.attention.block.project": "encoder.layer.*.attention.self.query + "
        "encoder.layer.*.attention.self.key + encoder.layer.*.attention.self.value",
        "encoder.layers.*.attention.block.output": "encoder.layer.*.attention.output.dense",
        "encoder.layers.*.attention.after": "encoder.layer.*.attention.output.LayerNorm",
        "encoder.layers.*.feed_forward.block.widen": "encoder.layer.*.intermediate.dense",
        "encoder.layers.*.feed_forward.block.narrow": "encoder.layer.*.output.dense",
        "encoder.layers.*.feed_forward.after": "encoder.layer.*.output.LayerNorm",
    }
    inner = {ours: " + ".join(inside + one for one in theirs.split(" + ")) for ours, theirs in names.items()}
    return inner | {"pooling.dense": pooler, "head": head}


BERT = Keys(
    inside="bert.",
    modules=_of_bert("bert.", pooler="bert.pooler.dense", head="classifier"),
    segments="bert.embeddings.token_type_embeddings",
    others=("bert.pooler.", "classifier.", "cls.", "qa_outputs."),
)

ROBERTA = Keys(
    inside="roberta.",
    modules=_of_bert("roberta.", pooler="classifier.dense", head="classifier.out_proj"),
    segments="roberta.embeddings.token_type_embeddings",
    others=("roberta.pooler.", "classifier.", "lm_head.", "qa_outputs."),
)

ELECTRA = Keys(
    inside="electra.",
    modules=_of_bert("electra.", pooler="classifier.dense", head="classifier.out_proj")
    | {"embeddings.widen": "electra.embeddings_project"},
    segments="electra.embeddings.token_type_embeddings",
    others=(
        *("classifier.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head."),
        "qa_outputs.",
    ),
)

DISTILBERT = Keys(
    inside="distilbert.",
    modules={
        "embeddings.words": "distilbert.embeddings.word_embeddings",
        "embeddings.positions": "distilbert.embeddings.position_embeddings",
        "embeddings.norm": "distilbert.embeddings.LayerNorm",
        "encoder.layers.*.attention.block.project": "distilbert.transformer.layer.*.attention.q_lin + "
        "distilbert.transformer.layer.*.attention.k_lin + distilbert.transformer.layer.*.attention.v_lin",
        "encoder.layers.*.attention.block.output": "distilbert.transformer.layer.*.attention.out_lin",
        "encoder.layers.*.attention.after": "distilbert.transformer.layer.*.sa_layer_norm",
        "encoder.layers.*.feed_forward.block.widen": "distilbert.transformer.layer.*.ffn.lin1",
        "encoder.layers.*.feed_forward.block.narrow": "distilbert.transformer.layer.*.ffn.lin2",
        "encoder.layers.*.feed_forward.after": "distilbert.transformer.layer.*.output_layer_norm",
        "pooling.dense": "pre_classifier",
        "head": "classifier",
    },
    others=("pre_classifier.", "classifier.", "vocab_", "qa_outputs."),
)

MODERNBERT = Keys(
    inside="model.",
    modules={
        "embeddings.words": "model.embeddings.tok_embeddings",
        "embeddings.norm": "model.embeddings.norm",
        "encoder.layers.*.attention.before": "model.layers.*.attn_norm",
        "encoder.layers.*.attention.block.project": "model.layers.*.attn.Wqkv",
        "encoder.layers.*.attention.block.output": "model.layers.*.attn.Wo",
        "encoder.layers.*.feed_forward.before": "model.layers.*.mlp_norm",
        "encoder.layers.*.feed_forward.block.widen": "model.layers.*.mlp.Wi",
        "encoder.layers.*.feed_forward.block.narrow": "model.layers.*.mlp.Wo",
        "encoder.norm": "model.final_norm",
        "pooling.dense": "head.dense",
        "pooling.norm": "head.norm",
        "head": "classifier",
    },
    others=("head.", "classifier.", "decoder."),
    computed=("inv_freq",),
)

KEYS = {"bert": BERT, "distilbert": DISTILBERT, "electra": ELECTRA, "modernbert": MODERNBERT, "roberta": ROBERTA}
