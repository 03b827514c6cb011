"""The votes of a bag before the first step: a linear classifier of the words and neighbours in the training rows.

Few rows make few steps, too few for votes to find their place; a linear model of them is hard to beat there: Wang and
Manning (2012), "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification".

n rows . V rows of votes that are in use . C classes
"""

import torch
from torch import Tensor

from manyheads.config import RunConfig
from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.tokens import Tokens
from manyheads.fit.logistic import logistic
from manyheads.nn import Classifier
from manyheads.nn.bag import Bag

STRENGTH = 10.0  # of the rows against the pull to zero: anything from 1 to 100 is level
BLOCK = 100  # rows that are dense at a time
TINY = 1e-6  # beside the squared length of a row, which is about 1


@torch.no_grad()
def begin_votes(run: RunConfig, classifier: Classifier, bag: Bag, tokens: Tokens) -> None:
    """Fit the votes, in which a rare n-gram counts for more, to all training rows; the encoder answers nothing yet. No
    generator is touched."""
    x_nV, labels, used_V = counted(run, classifier, bag, tokens)
    size_V = rarity(x_nV)
    size_V /= times(x_nV, size_V).values().square().sum().div(len(tokens)).sqrt().clamp(min=TINY)
    weight_VC, bias_C = wide(times(x_nV, size_V), labels, classifier.head.out_features)
    bag.votes.weight[used_V] = weight_VC * size_V[:, None]
    classifier.head.weight.zero_()
    classifier.head.bias.copy_(bias_C)


def wide(x_nV: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Logistic regression of few sparse rows with many columns: matrix `(V, C)` and bias `(C,)`.

    The best matrix is made of the rows, so as many columns as there are rows will do: those of a triangle whose rows
    have the same products with each other (Schölkopf and Smola, 2002, "Learning with Kernels", section 4.2). In double
    precision: of more rows than n-grams the products are singular, and `TINY` must be more than their rounding.
    """
    x_nV = x_nV.double()
    products = [x_nV @ x_nV.index_select(0, rows).to_dense().T for rows in torch.arange(len(x_nV)).split(BLOCK)]
    products_nn = torch.cat(products, 1)
    products_nn.diagonal().add_(TINY)
    triangle_nn = torch.linalg.cholesky(products_nn)
    weight_Cn, bias_C = logistic(triangle_nn.float(), labels, n_classes, strength=STRENGTH)
    share_nC = torch.linalg.solve_triangular(triangle_nn.T, weight_Cn.T.double(), upper=True)
    return (x_nV.T @ share_nC).float(), bias_C


def counted(run: RunConfig, classifier: Classifier, bag: Bag, tokens: Tokens) -> tuple[Tensor, Tensor, Tensor]:
    """What each training row has of the votes that are in use, sparse and `(n, V)`, the rows' labels, and which votes
    these are."""
    plan = plan_evaluation(tokens.lengths, tokens=run.batch.tokens, rows=run.batch.rows)
    parts, labels = [], []
    for batch in Batches(tokens, plan):
        parts.append(bag.parts(classifier.names(batch.ids_N, batch.layout, batch.segments_N), batch.layout))
        labels.append(batch.labels_B)
    together = torch.cat(parts).coalesce()
    used_V, at = together.indices()[1].unique(return_inverse=True)
    where = torch.stack((together.indices()[0], at))
    size = (len(together), len(used_V))
    x_nV = torch.sparse_coo_tensor(where, together.values(), size, check_invariants=True).coalesce()
    return x_nV, torch.cat(labels), used_V


def times(x_nV: Tensor, size_V: Tensor) -> Tensor:
    """The columns of a sparse matrix, each by its size."""
    entries_E = x_nV.values() * size_V[x_nV.indices()[1]]
    return torch.sparse_coo_tensor(x_nV.indices(), entries_E, x_nV.shape, check_invariants=True).coalesce()


def rarity(x_nV: Tensor) -> Tensor:
    """The inverse document frequency of each column, `(V,)`, as scikit-learn smooths it."""
    found_V = torch.bincount(x_nV.indices()[1], minlength=x_nV.shape[1])
    return ((1 + len(x_nV)) / (1 + found_V)).log() + 1
