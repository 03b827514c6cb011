"""Models of others: weights of BERT's family for `init_from=`, the verbs `export` and `push`, classes for transformers.

Two verbs; a part of kind `weights`, which says by its fact `find` whether a folder holds such weights, and reads them;
a part of kind `encoder`, that of DeBERTa; and one of kind `module`: `manyheads.transformers` is the module of these
classes.
"""

from pathlib import Path

from manyheads.plugin import Part, Plugin, Verb

EXPORT = Verb(
    "export",
    config="manyheads.plugins.hub.config:ExportConfig",
    run="manyheads.plugins.hub.export:export",
    help="write a trained model for transformers, sentence-transformers, onnxruntime, a browser or torch",
    examples=(
        "manyheads export run=outputs/reviews",
        "manyheads export run=outputs/reviews format=onnx",
        "manyheads export run=outputs/reviews format=browser",
    ),
)
PUSH = Verb(
    "push",
    config="manyheads.plugins.hub.config:PushConfig",
    run="manyheads.plugins.hub.push:push",
    help="upload a trained model to the Hugging Face hub",
    examples=(
        "manyheads push run=outputs/reviews repo=me/reviews dry=true",
        "manyheads push run=outputs/reviews repo=me/reviews tag=v1",
    ),
)
BERT = Part(
    "weights",
    "bert",
    "manyheads.plugins.hub.weights:read_weights",
    facts={"find": "manyheads.plugins.hub.shapes:find_family"},
)
DEBERTA = Part(
    "encoder",
    "deberta",
    "manyheads.plugins.hub.disentangled:deberta",
    options={
        **{"buckets": 256, "max_distance": 512, "c2p": True, "p2c": True, "share": True, "norm": True},
        **{"convolution": 0, "convolution_groups": 1, "convolution_activation": "tanh"},
    },
    facts={"has_heads": True, "lacks_precision": ("fp16",)},
)
CLASSES = Part("module", "transformers", "manyheads.plugins.hub.transformers:THIS")
PLUGIN = Plugin("hub", verbs=(EXPORT, PUSH), parts=(BERT, DEBERTA, CLASSES), presets=Path(__file__).parent / "conf")
