"""Answers to labels with levels: the deepest level that is sure, and the figures of each level.

n rows . C classes
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.evaluation import Finding
from manyheads.evaluation.intervals import share_interval, shares_interval
from manyheads.evaluation.metrics import Outcomes, score_answers
from manyheads.evaluation.report import ReportSection, ReportTable
from manyheads.inference.classifier import DIGITS
from manyheads.inference.format import ModelFolder
from manyheads.inference.rules import AnswerRule
from manyheads.plugins.hierarchy.tree import NO_NODE, Tree, sums
from manyheads.runs.summary import Figures, Interval, figures_to_plain


class Levels(NamedTuple):
    """A tree, and how sure an answer has to be."""

    tree: Tree
    sure: float

    def line(self, node: int) -> list[str]:
        """The names from the top to a node."""
        return [] if node == NO_NODE else self.tree.lines[node]


def level_rule(config: Any, folder: ModelFolder, classifier: Any) -> AnswerRule:
    """What predict, serve and evaluate do with answers by the tree of the model: the label is the deepest node that is
    sure, null where none is; `levels` are its name after those above it, and `confidence` is its probability."""
    levels = Levels(Tree(classifier.labels, folder.settings.kept["hierarchy"]), config.hierarchy.sure)
    lines, judge = [], None
    if levels.sure:
        judge = "manyheads.plugins.hierarchy.answers:answered_levels"
        lines = [f"hierarchy.sure={levels.sure:g}: the label is the deepest level with at least that probability"]
    return AnswerRule(
        apply=partial(apply_levels, levels),
        columns=("levels", "confidence"),
        lines=lines,
        digest=f"hierarchy {levels.sure}",
        judge=judge,
        fitted=levels,
    )


def apply_levels(levels: Levels, answers: list[dict[str, Any]], predictions: list[Any], marks_n: Any = None) -> None:
    """Change each answer; one that another rule has left without a label stays so."""
    probabilities_nC = np.array([list(one.probabilities.values()) for one in predictions])
    node_n, probability_n = levels.tree.deepest(probabilities_nC, levels.sure)
    for answer, node, probability in zip(answers, node_n.tolist(), probability_n.tolist(), strict=True):
        line = [] if answer["label"] is None else levels.line(node)
        answer["label"], answer["levels"] = line[-1] if line else None, line
        answer["confidence"] = round(probability, DIGITS) if line else None


def answered_levels(stored: LogitStore, levels: Levels, marks_n: None = None) -> Finding:
    """How many rows are answered down to each level, and how many of them rightly: their class is the answer, or below
    it."""
    depths, rights = [], []
    for found in stored.answers():
        node_n, _ = levels.tree.deepest(found.probabilities_nC, levels.sure)
        depths += [len(levels.line(node)) for node in node_n.tolist()]
        rights.append((levels.tree.node_CD[found.labels] == node_n[:, None]).any(1))
    depth_n, right_n = np.array(depths), np.concatenate(rights)
    content, rows = [], []
    for depth in range(levels.tree.depth, -1, -1):
        of_depth_n = depth_n == depth
        n, name = int(of_depth_n.sum()), f"level {depth}" if depth else "no level"
        figures = {"answered": share_interval(n, len(depth_n))}
        if n and depth:
            figures["right"] = share_interval(int(right_n[of_depth_n].sum()), n)
        content.append({"level": depth, **figures_to_plain(figures)})
        rows.append([name, f"{n:,}", *(one.words for one in figures.values()), *[""] * (2 - len(figures))])
    lines = [
        f"hierarchy.sure={levels.sure:g}: {name}: {share} of rows; right: {right or '-'}"
        for name, _, share, right in rows
    ]
    table = ReportTable(["answered down to", "rows", "share", "right among them"], rows, "wnnn")
    return Finding("levels", content, [ReportSection("Answers by level", table)], lines)


def figures_of_levels(stored: LogitStore, outcomes: Outcomes) -> Finding | None:
    """Accuracy and macro F1 at each level, where the answer is the node of the answered class; the accuracy of the node
    whose classes have the largest sum of probabilities (`likeliest`); and `hierarchical` figures."""
    if "hierarchy" not in stored.kept:
        return None
    tree, labels_n, answers_n = Tree(stored.names, stored.kept["hierarchy"]), outcomes.labels, outcomes.answers
    levels, n_right_D = [tree.level(at) for at in range(tree.depth)], np.zeros(tree.depth, dtype=int)
    for found in stored.answers():
        for at, (_, of_C) in enumerate(levels):
            likeliest_n = sums(found.probabilities_nC, of_C).argmax(1)
            n_right_D[at] += int((likeliest_n == of_C[found.labels]).sum())
    whole = hierarchical(tree, labels_n, answers_n)
    figures: Figures = {"hierarchical F1": whole["f1"]}
    content, rows = [], []
    for at, (n_nodes, of_C) in enumerate(levels):
        scored = score_answers(of_C[labels_n], of_C[answers_n], n_nodes)
        of_level = {name: scored[name] for name in ("accuracy", "macro_f1")}
        of_level["likeliest"] = share_interval(int(n_right_D[at]), len(labels_n))
        content.append({"level": at + 1, "nodes": n_nodes, **figures_to_plain(of_level)})
        rows.append([f"level {at + 1}", f"{n_nodes:,}", *of_level.values()])
        figures[f"accuracy at level {at + 1}"] = scored["accuracy"]
    notes = [
        "a class that ends above a level counts there as itself; likeliest: accuracy of the node with the largest "
        "probability, the sum of those of its classes",
        "of the nodes on the way from the top, without it (Kiritchenko et al., 2006): hierarchical "
        + ", ".join(f"{name} {one.words}" for name, one in whole.items()),
    ]
    section = ReportSection(
        "Level by level", ReportTable(["", "nodes", "accuracy", "macro F1", "likeliest"], rows, "wniii"), notes
    )
    lines = [f"{name}: {one.words}" for name, one in figures.items()]
    return Finding("hierarchy", {"levels": content, **figures_to_plain(whole)}, [section], lines, figures)


def hierarchical(tree: Tree, labels_n: Any, answers_n: Any) -> dict[str, Interval]:
    """Precision, recall and F1 of the nodes from the top to the answers, by those to the classes; intervals of ratios
    of sums by the delta method.

    Kiritchenko, Matwin, Nock and Famili (2006), "Learning and Evaluation in the Presence of Class Hierarchies",
    section 3.
    """
    ways = [{*of_class} for of_class in tree.node_CD.tolist()]
    depth_C = np.array([*map(len, ways)])
    pairs_2P, of_n = np.unique(np.stack([labels_n, answers_n]), axis=1, return_inverse=True)
    shared_P = np.array([len(ways[label] & ways[answer]) for label, answer in pairs_2P.T.tolist()])
    shared_n, labelled_n, answered_n = shared_P[of_n.reshape(-1)], depth_C[labels_n], depth_C[answers_n]
    found = {}
    for name, of_n in {"precision": answered_n, "recall": labelled_n, "f1": (answered_n + labelled_n) / 2}.items():
        ratio = shared_n.sum() / of_n.sum()
        variance = float(((shared_n - ratio * of_n) ** 2).sum() / of_n.sum() ** 2)
        found[name] = shares_interval(np.array([ratio]), np.array([float(len(of_n))]), variance)
    return found
