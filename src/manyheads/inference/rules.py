"""What changes or marks the answers of a classifier, in predict, serve and evaluate alike: parts of kind `answer_rule`.

Such a part is `make(config, folder, classifier)`: an `AnswerRule`, fitted as the settings say. Its fact `check` is
`check(config, folder)`: whether they ask for it; it raises UserError for settings that do nothing or do not suit the
model, before torch is imported.

n texts . C classes
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.hooks import Code
from manyheads.inference.format import ModelFolder

if TYPE_CHECKING:
    from torch import Tensor


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


def fit_rules(config: Any, folder: ModelFolder, predictor: object) -> list[AnswerRule]:
    """The rules that the settings ask for; none where the model is no classifier."""
    if folder.settings.task != "classify":
        return []
    names = plugin.asked("answer_rule", config, folder)
    return [plugin.make("answer_rule", name)(config, folder, predictor) for name in names]


def mark_texts(
    rules: Sequence[AnswerRule], classifier: Any, texts: list[str], pairs: list[str] | None, *, tokens: int
) -> "tuple[Tensor | None, list[Tensor | None]]":
    """The network's logits where a rule looks into it, and what each rule marks the texts with."""
    network_nC, marks = None, list["Tensor | None"]()
    for rule in rules:
        marks_n = None
        if rule.mark is not None:
            network_nC, marks_n = rule.mark(classifier, texts, pairs, tokens=tokens)
        marks.append(marks_n)
    return network_nC, marks
