"""Greedy and beam search against every sequence of a tiny vocabulary, by a model that depends on the whole prefix."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from manyheads.layout import Packed
from manyheads.nn.language_models import beam_search, greedy, highest

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


def every_answer(model: Prefixes, source: int, max_length: int, length_penalty: float) -> dict[tuple[int, ...], float]:
    """All answers that end within `max_length` steps, and their scores."""
    scores = {}
    for length in range(1, max_length + 1):
        for said in product([token for token in range(model.n_vocabulary) if token != END], repeat=length - 1):
            answer, total = (*said, END), 0.0
            for at, token in enumerate(answer):
                total += model.logits(source, [START, *answer[:at]]).double().log_softmax(-1)[token].item()
            scores[said] = total / ((5 + length) / 6) ** length_penalty
    return scores


def documents(*sources: int) -> tuple[Tensor, Packed]:
    return torch.tensor([token for source in sources for token in (source, 7)]), Packed.of_lengths([2] * len(sources))


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_that_holds_everything_finds_the_best_of_all_answers(seed, length_penalty):
    model = Prefixes(3, seed)
    found = beam_search(
        model, *documents(4, 5), start=START, end=END, max_length=4, n_beams=3**4, length_penalty=length_penalty
    )
    for source, answer in zip((4, 5), found, strict=True):
        scores = every_answer(model, source, 4, length_penalty)
        assert tuple(answer) == max(scores, key=scores.__getitem__)


def slow_beam(model: Prefixes, source: int, max_length: int, n_beams: int, length_penalty: float) -> list[int]:
    """The same search for one document, with lists."""
    beam: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for _ in range(max_length):
        candidates = []
        for total, said in beam:
            logs = model.logits(source, [START, *said]).double().log_softmax(-1).tolist()
            candidates += [(total + log, [*said, token]) for token, log in enumerate(logs)]
        candidates = sorted(candidates, key=lambda one: -one[0])[: n_beams - len(ended)]
        ended += [
            (total / ((5 + len(said)) / 6) ** length_penalty, said[:-1])
            for total, said in candidates
            if said[-1] == END
        ]
        beam = [one for one in candidates if one[1][-1] != END]
    return max(ended or beam, key=lambda one: one[0])[1]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(0, 6),
    st.lists(st.integers(2, 9), max_size=4),
    st.sampled_from([0.0, 0.6, 1.5]),
    st.integers(2, 5),
)
def test_beams_of_any_width_are_those_of_a_search_with_lists(seed, n_beams, max_length, sources, penalty, n_vocabulary):
    model = Prefixes(n_vocabulary, seed, sharpness=2.0)
    found = beam_search(
        model,
        *documents(*sources),
        start=START,
        end=END,
        max_length=max_length,
        n_beams=n_beams,
        length_penalty=penalty,
    )
    assert found == [slow_beam(model, source, max_length, n_beams, penalty) for source in sources]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 8), st.lists(st.integers(2, 9), max_size=5), st.floats(0, 2))
def test_a_beam_of_one_is_greedy_and_each_document_is_alone(seed, max_length, sources, penalty):
    model = Prefixes(4, seed)
    wanted = {"start": START, "end": END, "max_length": max_length}
    together = greedy(model, *documents(*sources), **wanted)
    assert together == beam_search(model, *documents(*sources), **wanted, n_beams=1, length_penalty=penalty)
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
    found = [
        beam_search(Level(4, 0), *documents(2, 3), start=START, end=3, max_length=3, n_beams=2, length_penalty=0.0)
        for _ in range(2)
    ]
    assert found == [[[0, 0, 0], [0, 0, 0]]] * 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 7))
def test_the_highest_are_those_of_a_stable_sort(rows, n):
    x = torch.tensor(rows, dtype=torch.float64)
    x[x == -2] = -torch.inf
    values, places = highest(x, n)
    expected = x.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :n])
    assert torch.equal(places, expected.indices[:, :n])


@pytest.mark.parametrize("n_beams", [0, 1, 3])
def test_documents_that_have_ended_are_not_computed_again(n_beams):
    class EndsAt(Prefixes):
        def logits(self, source: int, said: list[int]) -> Tensor:
            return torch.tensor([0.0, 50.0 if len(said) == source else -50.0, 9.0])

    model, wanted = EndsAt(3, 0), {"start": START, "end": END, "max_length": 9}
    width = max(1, n_beams)
    found = (
        beam_search(model, *documents(1, 3, 5), **wanted, n_beams=n_beams)
        if n_beams
        else greedy(model, *documents(1, 3, 5), **wanted)
    )
    assert found == [[], [2] * 2, [2] * 4]
    if width == 1:
        assert model.rows_asked == [3, 2, 2, 1, 1]
