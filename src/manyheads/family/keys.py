"""How the families name what our blocks hold: one table each, read from right to left to load, back to save."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of the modules of one family, as in its class ForSequenceClassification.

    Attributes:
        inside: what stands before the names of the encoder, unless a file holds the encoder alone.
        modules: our module to theirs; `*` is the number of a layer, ` + ` joins those that lie side by side in ours.
        segments: their table of segments, which is added to the positions where it has but one row.
        others: beginnings of names that are heads of this or another task: what is not asked for is left alone.
        computed: ends of names of what follows from config.json.
    """

    inside: str
    modules: dict[str, str]
    segments: str
    others: tuple[str, ...]
    computed: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")


BERT = Keys(
    inside="bert.",
    modules={
        "embeddings.words": "bert.embeddings.word_embeddings",
        "embeddings.positions": "bert.embeddings.position_embeddings",
        "embeddings.segments": "bert.embeddings.token_type_embeddings",
        "embeddings.norm": "bert.embeddings.LayerNorm",
        "encoder.layers.*.attention.block.project": "bert.encoder.layer.*.attention.self.query + "
        "bert.encoder.layer.*.attention.self.key + bert.encoder.layer.*.attention.self.value",
        "encoder.layers.*.attention.block.output": "bert.encoder.layer.*.attention.output.dense",
        "encoder.layers.*.attention.after": "bert.encoder.layer.*.attention.output.LayerNorm",
        "encoder.layers.*.feed_forward.block.widen": "bert.encoder.layer.*.intermediate.dense",
        "encoder.layers.*.feed_forward.block.narrow": "bert.encoder.layer.*.output.dense",
        "encoder.layers.*.feed_forward.after": "bert.encoder.layer.*.output.LayerNorm",
        "pooling.dense": "bert.pooler.dense",
        "head": "classifier",
    },
    segments="bert.embeddings.token_type_embeddings",
    others=("bert.pooler.", "classifier.", "cls.", "qa_outputs."),
)

KEYS = {"bert": BERT}
