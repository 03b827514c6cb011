"""Static vectors: `model=static`, a mean of word vectors and a head, without layers; and weights for `init_from=`.

An encoder without layers and a pooling. Weights are a folder of model2vec, a text file of word vectors (word2vec,
GloVe, fastText) or, with `model=static`, any encoder: each of its tokens is read by itself. A tokenizer reads such
files. Other models take the vectors of a folder or file as their embeddings.
"""

from pathlib import Path

from manyheads.plugin import Part, Plugin

STATIC = Part(
    "encoder",
    "static",
    "manyheads.plugins.static.network:static",
    options={},
    facts={
        "reads": ("pair",),
        "of_sentences": True,
        "describe": "manyheads.plugins.static.network:describe_static",
        "flops": "manyheads.plugins.static.network:flops_of_sum",
        "from_weights": "manyheads.plugins.static.origins:as_static",
        "presets": {"model": "static", "optim": "static"},
    },
)
DIRECTION = Part("pooling", "direction", "manyheads.plugins.static.network:direction", options={})
FILES = Part(
    "weights",
    "vectors",
    "manyheads.plugins.static.vectors:read_table_of_words",
    facts={
        "find": "manyheads.plugins.static.origins:find_folder",
        "find_file": "manyheads.plugins.static.origins:find_file",
    },
)
DISTILLED = Part("weights", "distilled", "manyheads.plugins.static.distil:distilled_vectors")
TOKENIZER = Part("tokenizer", "vectors", "manyheads.plugins.static.origins:vector_tokenizer")
PLUGIN = Plugin(
    "static",
    parts=(STATIC, DIRECTION, FILES, DISTILLED, TOKENIZER),
    presets=Path(__file__).parent / "conf",
)
