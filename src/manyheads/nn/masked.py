"""A text with words hidden, and a guess at each of them: Devlin et al. (2019), "BERT", section 3.1.

... tokens in a layout (N packed, or B L padded) . P places that are guessed . D d_model . E width of the words' table
V vocabulary
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import ModelConfig
from manyheads.layout import Layout
from manyheads.nn.assemble import assemble
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.encoder import Encoder
from manyheads.nn.norms import make_norm
from manyheads.nn.recurrent import Recurrent
from manyheads.nn.weights import initialise


class WordHead(nn.Module):
    """Token vectors to a score for every word: one more layer, then the words' own vectors.

    The table of the words is that of the embeddings (Press and Wolf, 2017, "Using the Output Embedding to Improve
    Language Models"); only a bias a word is added.
    """

    def __init__(self, *, d_model: int, d_words: int, vocab_size: int, norm: nn.Module) -> None:
        super().__init__()
        self.project = nn.Linear(d_model, d_words)
        self.norm = norm
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x_PD: Tensor, words_VE: Tensor) -> Tensor:
        """Logits `(P, V)`."""
        return F.linear(self.norm(F.gelu(self.project(x_PD))), words_VE, self.bias)


class MaskedLM(nn.Module):
    """Embeddings and encoder as of a classifier, by the same names, and the words in place of its classes."""

    def __init__(self, *, embeddings: Embeddings, encoder: Encoder | Recurrent, head: WordHead) -> None:
        super().__init__()
        self.embeddings, self.encoder = embeddings, encoder
        self.head = head

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None, places_P: Tensor) -> Tensor:
        """Logits `(P, V)` of the words at `places_P`, counted in the flattened ids: the head sees these alone."""
        x = self.encoder(self.embeddings(ids, layout, segments), layout)
        return self.head(x.flatten(0, -2)[places_P], self.embeddings.words.weight)


def assemble_masked(model: ModelConfig, *, vocab_size: int, max_length: int, n_segments: int = 0) -> MaskedLM:
    """Build what `model` describes up to its pooling, freshly initialised from torch's generator.

    Args:
        vocab_size, max_length, n_segments: as of `assemble`, whose classifier has the same embeddings and encoder.
    """
    classifier = assemble(model, vocab_size=vocab_size, n_classes=1, max_length=max_length, n_segments=n_segments)
    words = classifier.embeddings.words
    head = WordHead(
        d_model=model.d_model,
        d_words=words.embedding_dim,
        vocab_size=vocab_size,
        norm=make_norm(model.norm.name, words.embedding_dim, model.norm_eps),
    )
    initialise(head)
    return MaskedLM(embeddings=classifier.embeddings, encoder=classifier.encoder, head=head)
