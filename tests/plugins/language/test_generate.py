"""The greedy search step by step, by a model that depends on the whole prefix."""

from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from manyheads.layout import Packed
from manyheads.plugins.language.networks import greedy

START, END = 0, 1


@dataclass
class Prefix:
    source_R: Tensor
    said_RT: Tensor

    def take(self, rows: Tensor) -> "Prefix":
        return Prefix(self.source_R[rows], self.said_RT[rows])


class Prefixes:
    """Logits drawn anew for every source and every prefix; a document's source is its first token."""

    def __init__(self, n_vocabulary: int, seed: int, sharpness: float = 1.0) -> None:
        self.n_vocabulary, self.seed, self.sharpness = n_vocabulary, seed, sharpness
        self.rows_asked: list[int] = []

    def start(self, source_ids: Tensor, source_layout: Packed) -> Prefix:
        return Prefix(source_ids[source_layout.offsets[:-1]], source_ids.new_empty(source_layout.n_documents, 0))

    def step(self, ids_B: Tensor, state: Prefix) -> tuple[Tensor, Prefix]:
        self.rows_asked.append(len(ids_B))
        said_RT = torch.cat((state.said_RT, ids_B[:, None]), dim=1)
        logits = [
            self.logits(source, said) for source, said in zip(state.source_R.tolist(), said_RT.tolist(), strict=True)
        ]
        return torch.stack(logits) if logits else torch.empty(0, self.n_vocabulary), Prefix(state.source_R, said_RT)

    def logits(self, source: int, said: list[int]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, source, *said)) % 2**31)
        return self.sharpness * torch.randn(self.n_vocabulary, generator=generator)


def documents(*sources: int) -> tuple[Tensor, Packed]:
    return torch.tensor([token for source in sources for token in (source, 7)]), Packed.of_lengths([2] * len(sources))


@given(st.integers(0, 10**6), st.integers(0, 8), st.lists(st.integers(2, 9), max_size=5))
def test_each_document_is_alone(seed, max_length, sources):
    model = Prefixes(4, seed)
    wanted = {"start": START, "end": END, "max_length": max_length}
    together = greedy(model, *documents(*sources), **wanted)
    assert together == [greedy(model, *documents(source), **wanted)[0] for source in sources]
    for source, answer in zip(sources, together, strict=True):
        said = [START]
        while len(said) <= max_length and (token := int(model.logits(source, said).argmax())) != END:
            said.append(token)
        assert answer == said[1:]


class Level(Prefixes):
    """Every token as likely as any other."""

    def logits(self, source: int, said: list[int]) -> Tensor:
        return torch.zeros(self.n_vocabulary)


def test_ties_go_to_the_lower_id():
    assert greedy(Level(4, 0), *documents(2), start=START, end=END, max_length=3) == [[0, 0, 0]]


def test_documents_that_have_ended_are_not_computed_again():
    class EndsAt(Prefixes):
        def logits(self, source: int, said: list[int]) -> Tensor:
            return torch.tensor([0.0, 50.0 if len(said) == source else -50.0, 9.0])

    model, wanted = EndsAt(3, 0), {"start": START, "end": END, "max_length": 9}
    assert greedy(model, *documents(1, 3, 5), **wanted) == [[], [2] * 2, [2] * 4]
    assert model.rows_asked == [3, 2, 2, 1, 1]
