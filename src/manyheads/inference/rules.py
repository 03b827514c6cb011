"""What changes or marks the answers of a classifier, in predict and in evaluate alike: parts of kind `answer_rule`.

Such a part is `make(config, folder, classifier)`: an `AnswerRule`, fitted as the settings say, or None where they ask
for none. Its fact `check`, where it has one, is `check(config, folder)`: it raises ValueError for settings that do
nothing or do not suit the model, before torch is imported.

n texts . C classes
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.inference.format import ModelFolder
from manyheads.plugin import Code

if TYPE_CHECKING:
    from torch import Tensor

    from manyheads.inference.classifier import TextClassifier


@dataclass(kw_only=True, slots=True)
class AnswerRule:
    """A rule that was fitted.

    Attributes:
        apply: `apply(answers, predictions, marks_n)` changes the answers, a dict a text as predict writes it, by the
            predictions of the classifier.
        columns: what it adds to each answer, null where a text cannot be answered.
        lines: what it promises, in sentences without a full stop.
        digest: rules of the same digest change answers alike.
        mark: `mark(classifier, texts, pairs, tokens=)`, where it looks into the network: the network's logits `(n, C)`,
            and a number for each text `(n,)`, its `marks_n`; so texts are read once.
        judge: `judge(stored, fitted, marks_n)`: the `Finding` on how the rule does on rows that are evaluated.
        fitted: what `judge` is given.
        set_on: the digest of the rows that it was fitted on.
        refusal: why those are not evaluated; `{source}` is their name.
    """

    apply: Callable[[list[dict[str, Any]], list[Any], Any], None]
    columns: tuple[str, ...] = ()
    lines: Sequence[str] = ()
    digest: str = ""
    mark: Callable[..., tuple[Any, Any]] | None = None
    judge: Code | None = None
    fitted: Any = None
    set_on: str = ""
    refusal: str = ""


def check_rules(config: Any, folder: ModelFolder) -> None:
    """Raise ValueError where settings of a rule do nothing, or do not suit the model."""
    for part in plugin.parts("answer_rule").values():
        if "check" in part.facts:
            plugin.resolve(part.facts["check"])(config, folder)


def fit_rules(config: Any, folder: ModelFolder, predictor: object) -> list[AnswerRule]:
    """The rules that the settings ask for of a classifier."""
    from manyheads.inference.classifier import TextClassifier

    if not isinstance(predictor, TextClassifier):
        return []
    made = (plugin.make("answer_rule", name)(config, folder, predictor) for name in plugin.names("answer_rule"))
    return [rule for rule in made if rule is not None]


def mark_texts(
    rules: Sequence[AnswerRule], classifier: "TextClassifier", texts: list[str], pairs: list[str] | None, *, tokens: int
) -> "tuple[Tensor | None, list[Tensor | None]]":
    """The network's logits where a rule looks into it, and what each rule marks the texts with."""
    network_nC, marks = None, list["Tensor | None"]()
    for rule in rules:
        marks_n = None
        if rule.mark is not None:
            network_nC, marks_n = rule.mark(classifier, texts, pairs, tokens=tokens)
        marks.append(marks_n)
    return network_nC, marks
