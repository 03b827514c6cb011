"""Other programs that begin with the weights of MiniLM: their answers to the test rows.

    pip install 'model2vec[distill]' setfit

model2vec's C is chosen on the validation part, as that of TF-IDF is (`ways/cheap.py`); the Trainer and SetFit have
nothing to choose, so they learn from all rows of train.csv. Texts are cut to 256 tokens, as ours are.

n rows . D width
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.rows import Rows, Splits
from ways.cheap import MIDDLE_C, STRENGTHS, climb
from ways.recipes import minilm, vectors

LENGTH = 256  # tokens of a text, or of both texts of a pair
FEW, FEW_EPOCHS, EPOCHS = 50, 30, 8  # of the Trainer: rows of a class up to which ours takes more epochs, and epochs
ITERATIONS = 20  # pairs of each sort that SetFit makes for a text: R of Tunstall et al. (2022), section 3

Found = tuple[list[int], list[int], dict[str, Any]]


def answers(way: str, splits: Splits, everything: Rows, seed: int, home: Path) -> Found:
    """Answers to the validation rows, if anything was chosen by them, answers to the test rows, and what was chosen."""
    assert splits.test is not None
    if way == "model2vec":
        return by_static_vectors(splits, everything)
    # no hub can be asked, and none is
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    tune = {"trainer": by_trainer, "setfit": by_setfit}[way]
    return [], tune(everything, splits.test, len(splits.labels), seed, home), {}


def by_static_vectors(splits: Splits, everything: Rows) -> Found:
    """model2vec's vectors as `distill` makes them by default, and scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression

    assert splits.test is not None
    model = static_vectors()
    train, validation, whole, test = (
        features(model, rows) for rows in (splits.train, splits.validation, everything, splits.test)
    )

    def fitted(strength: float, x_nD: np.ndarray, labels: list[int]) -> Any:
        return LogisticRegression(C=strength, max_iter=1000).fit(x_nD, labels)

    def score(point: tuple[float, ...]) -> float:
        return float(fitted(point[0], train, splits.train.labels).score(validation, splits.validation.labels))

    (strength,), tried = climb(score, (STRENGTHS,), (MIDDLE_C,))
    of_validation = fitted(strength, train, splits.train.labels).predict(validation)
    of_test = fitted(strength, whole, everything.labels).predict(test)
    return of_validation.tolist(), of_test.tolist(), {"strength": strength, "tried": tried}


def static_vectors() -> Any:
    """Those of MiniLM, distilled once."""
    from model2vec import StaticModel

    if not vectors().exists():
        from model2vec.distill import distill

        distill(str(minilm())).save_pretrained(vectors())
    return StaticModel.from_pretrained(vectors())


def features(model: Any, rows: Rows) -> np.ndarray:
    """A vector a text, `(n, D)`; of a pair [a; b; |a - b|; a b], `(n, 4D)` (Conneau et al., 2017, "InferSent")."""
    a_nD = model.encode(rows.texts)
    if rows.pairs is None:
        return a_nD
    b_nD = model.encode(rows.pairs)
    return np.concatenate([a_nD, b_nD, np.abs(a_nD - b_nD), a_nD * b_nD], axis=1)


def by_trainer(train: Rows, rows: Rows, n_classes: int, seed: int, home: Path) -> list[int]:
    """The Hugging Face Trainer with its defaults, but for as many epochs as ours."""
    import datasets
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=n_classes)
    tokenizer = AutoTokenizer.from_pretrained(minilm())

    def encoded(some: Rows) -> Any:
        pairs = None if some.pairs is None else list(some.pairs)
        given = tokenizer(list(some.texts), pairs, truncation=True, max_length=LENGTH)
        return datasets.Dataset.from_dict({**given, "labels": list(some.labels)})

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(home / "trainer"),
            num_train_epochs=FEW_EPOCHS if len(train) <= FEW * n_classes else EPOCHS,
            seed=seed,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=encoded(train),
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    return np.asarray(trainer.predict(encoded(rows)).predictions).argmax(1).tolist()


def by_setfit(train: Rows, rows: Rows, n_classes: int, seed: int, home: Path) -> list[int]:
    """SetFit with its defaults and the number of pairs of its paper. It has no pairs of texts, which are joined."""
    import datasets
    from setfit import SetFitModel, Trainer, TrainingArguments

    def joined(some: Rows) -> list[str]:
        if some.pairs is None:
            return list(some.texts)
        return [" [SEP] ".join(both) for both in zip(some.texts, some.pairs, strict=True)]

    model = SetFitModel.from_pretrained(str(minilm()))
    how = {"num_iterations": ITERATIONS, "seed": seed, "report_to": "none", "save_strategy": "no"}
    arguments = TrainingArguments(output_dir=str(home / "setfit"), show_progress_bar=False, **how)
    given = datasets.Dataset.from_dict({"text": joined(train), "label": list(train.labels)})
    Trainer(model=model, args=arguments, train_dataset=given).train()
    return [int(one) for one in model.predict(joined(rows), show_progress_bar=False)]
