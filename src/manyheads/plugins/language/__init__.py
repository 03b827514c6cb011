"""Answers that are tokens: task=seq2seq, one text to another, and task=pretrain, the words that are hidden in texts,
with the verb `pretrain`; and recurrent encoders: model.encoder=gru or lstm, with an attention over their states.

Two tasks, whose predictors, objectives and evaluations core calls as it calls those of `classify`; a verb; two
encoders; a data source; and three sections of settings.
"""

from pathlib import Path

from manyheads.plugin import FINISHED, LONG, TRAINING, Part, Plugin, Section, Task, Verb

ROWS_BY_CLASS = (  # settings that only a classifier reads
    *("linear", "refit", "predictions", "data.streaming", "data.folds", "data.fold", "batch.balance"),
    *("model.pair", "model.pooling", "model.pooler", "optim.few", "optim.few_strength", "optim.few_epochs"),
    *("optim.compare_rate", "optim.steps_per_class", "optim.focal_gamma", "optim.class_weights", "optim.objective"),
)
SEQ2SEQ = Task(
    answers="texts",
    model="answers by texts, not by classes",
    column="target",
    figures=("exact_match", "token_accuracy", "loss"),
    required=("exact_match", "token_accuracy", "loss"),
    hub=("text-generation", "Text to text"),
    assemble="manyheads.plugins.language.networks:assemble_seq2seq",
    objective="manyheads.plugins.language.objectives:translate",
    predictor="manyheads.plugins.language.predictors:Seq2SeqPredictor",
    evaluate="manyheads.plugins.language.evaluation:evaluate_texts",
    tokens="manyheads.plugins.language.targets:tokens_with_targets",
    check="manyheads.plugins.language.config:check_targets",
    unread=(*ROWS_BY_CLASS, "data.text_pair", "data.label", "data.merge_labels", "model.segments", "model.matches"),
    lacks=(
        *("optim.class_weights", "optim.focal_gamma", "batch.balance", "init_from", "data.long"),
        *("optim.few", "optim.layer_decay", "optim.freeze", "data.folds"),
    ),
    attends=True,
)
PRETRAIN = Task(
    answers="hidden words",
    model="predicts hidden words, not classes",
    column="text",
    figures=("loss", "masked_accuracy"),
    required=("masked_accuracy", "perplexity", "loss"),
    hub=("fill-mask", "Hidden words"),
    assemble="manyheads.plugins.language.networks:assemble_masked",
    objective="manyheads.plugins.language.objectives:pretrain",
    predictor="manyheads.plugins.language.predictors:MaskedLMPredictor",
    evaluate="manyheads.plugins.language.evaluation:evaluate_masked",
    read="manyheads.plugins.language.texts:read_splits_of_run",
    read_split="manyheads.plugins.language.texts:read_text_split",
    tokens="manyheads.plugins.language.pieces:tokens_in_pieces",
    unread=(
        *ROWS_BY_CLASS,
        *("data.target", "data.group", "data.train_share", "model.dropout_classifier", "optim.label_smoothing"),
    ),
    lacks=(
        *("data.folds", "data.group", "data.train_share", "optim.class_weights", "optim.focal_gamma"),
        *("batch.balance", "model.pair"),
    ),
    is_weights=True,
    max_validations=20,
)
VERB = Verb(
    "pretrain",
    config="manyheads.config.run:RunConfig",
    run="manyheads.training_run:train",
    help="learn from texts without labels, for training to start from",
    groups=TRAINING | {"task": "pretrain", "model": "tiny", "debug": None},
    examples=(
        "manyheads pretrain data.path=reviews.csv budget=10min output=outputs/read",
        "manyheads pretrain data.path=reviews.csv pretrain.also=[more.txt] pretrain.mask_share=0.3",
        "manyheads pretrain data.path=texts.txt budget=20Mtok model=mini",
    ),
    barred=FINISHED | dict.fromkeys(("classify", "seq2seq"), "what train does"),
    unread=dict.fromkeys(LONG, "all of a long text is read, in pieces"),
    from_weights={"optim": "further"},
    task="pretrain",
    why_task="only hidden words are predicted",
)
RECURRENT = {
    "reads": ("n_layers",),
    "poolings": {"attention": "manyheads.plugins.language.recurrent:state_pooling"},
    "describe": "manyheads.plugins.language.recurrent:describe_recurrent",
    "flops": "manyheads.plugins.language.recurrent:flops",
    "flops_of_answer": "manyheads.plugins.language.recurrent:flops_of_answer",
    "decoder": "manyheads.plugins.language.recurrent:recurrent_decoder",
}
GRU = Part("encoder", "gru", "manyheads.plugins.language.recurrent:recurrent_encoder", options={}, facts=RECURRENT)
LSTM = Part("encoder", "lstm", "manyheads.plugins.language.recurrent:recurrent_encoder", options={}, facts=RECURRENT)
DATES = Part("source", "dates", "manyheads.plugins.language.dates:dates", facts={"task": "seq2seq"})
DIRECTION_SETTINGS = Section(
    "",  # its setting becomes one of the section that it widens: model.bidirectional
    config="manyheads.plugins.language.recurrence:RecurrenceConfig",
    help="how a recurrent encoder reads",
    into=("model",),
    check="manyheads.plugins.language.recurrence:check",
)
PRETRAIN_SETTINGS = Section(
    "pretrain",
    config="manyheads.plugins.language.config:PretrainConfig",
    help="learning from texts alone",
    into=("run", "search"),
    facts={"resume": "refuse"},
    unread="manyheads.plugins.language.config:why_pretrain_unread",
)
GENERATE_SETTINGS = Section(
    "generate",
    config="manyheads.plugins.language.config:GenerateConfig",
    help="answers that are texts",
    into=("judge", "answer"),
    facts={"tasks": ("seq2seq",)},
)
PLUGIN = Plugin(
    "language",
    verbs=(VERB,),
    sections=(DIRECTION_SETTINGS, PRETRAIN_SETTINGS, GENERATE_SETTINGS),
    parts=(Part("task", "seq2seq", SEQ2SEQ), Part("task", "pretrain", PRETRAIN), GRU, LSTM, DATES),
    presets=Path(__file__).parent / "conf",
)
