"""Distillation against its formula in NumPy, and a student that has nobody else to learn from."""

import csv
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.data.batches import Planned, gather, moved
from manyheads.data.sources import read_splits
from manyheads.data.tokens import Tokens, encode
from manyheads.distributed import signals
from manyheads.distributed.signals import Stopped
from manyheads.inference.folder import load
from manyheads.nn import assemble
from manyheads.runs.config_file import read_run
from manyheads.training.before import check_teacher, teach
from manyheads.training.objectives import Classify, of_classes, of_labels

TINY = ["debug=fast", "hardware=cpu", "hardware.precision=fp32"]
GIVEN = torch.Generator().manual_seed(3)
OURS, THEIRS = (3 * torch.randn(5, 4, generator=GIVEN) for _ in range(2))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_divergence_of_classes_is_the_formula(temperature):
    q, p = (softmax(one.double().numpy() / temperature) for one in (OURS, THEIRS))
    expected = (p * np.log(p / q)).sum(-1)
    np.testing.assert_allclose(of_classes(OURS.double(), THEIRS.double(), temperature), expected, rtol=1e-9)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_divergence_of_labels_is_that_of_two_classes_each(temperature):
    q, p = (1 / (1 + np.exp(-one.double().numpy() / temperature)) for one in (OURS, THEIRS))
    expected = (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum(-1)
    found_BC = of_labels(OURS.double(), THEIRS.double(), temperature)
    np.testing.assert_allclose(found_BC.sum(-1), expected, rtol=1e-9)


def test_large_logits_stay_finite():
    far = torch.tensor([[1e4, -1e4, 0.0]])
    for divergence in (of_classes, of_labels):
        ours = (-far).requires_grad_()
        loss = divergence(ours, far, 1.0)
        loss.sum().backward()
        assert loss.isfinite().all()
        assert ours.grad is not None
        assert ours.grad.isfinite().all()
        assert not divergence(far, far, 2.0).any()


def tokens(labels):
    lengths = [3, 2, 4, 1, 5]
    return Tokens(
        ids_N=torch.arange(sum(lengths), dtype=torch.int32),
        offsets=torch.tensor([0, *np.cumsum(lengths)]),
        segments_N=None,
        labels=labels,
        teacher_nC=THEIRS,
    )


class Answering(torch.nn.Module):
    """Answers row by row as `OURS` says."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, ids, layout, segments=None):
        return OURS[self.rows]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("multi", [False, True])
def test_the_loss_of_a_row_is_shared_between_labels_and_teacher_and_then_weighted(weight, multi):
    labels = torch.randint(0, 2, (5, 4), generator=GIVEN, dtype=torch.uint8) if multi else torch.tensor([0, 3, 1, 1, 2])
    rows = torch.tensor([4, 0, 2])
    batch = gather(moved(tokens(labels), torch.device("cpu")), Planned(rows, 1.0))
    assert batch.teacher_BC is not None
    assert torch.equal(batch.teacher_BC, THEIRS[rows])
    divergence = of_labels if multi else of_classes
    model, weights_C = Answering(rows), torch.tensor([1.0, 2.0, 0.5, 1.0])
    taught = Classify(weights_C, label_smoothing=0.1, teacher_weight=weight, temperature=3.0, multi=multi).learn(
        model, batch
    )
    apart = weight * 9 * divergence(OURS[rows], THEIRS[rows], 3.0)
    if multi:
        marks_BC = batch.labels_B
        wanted_BC = 0.9 * marks_BC + 0.025
        alone_BC = F.binary_cross_entropy_with_logits(OURS[rows], wanted_BC, reduction="none")
        expected = (torch.where(marks_BC > 0, weights_C, 1.0) * ((1 - weight) * alone_BC + apart)).sum(1)
    else:
        alone_B = F.cross_entropy(OURS[rows], batch.labels_B, label_smoothing=0.1, reduction="none")
        expected = weights_C[batch.labels_B] * ((1 - weight) * alone_B + apart)
    torch.testing.assert_close(taught, expected)


def test_what_is_validated_is_without_the_teacher():
    batch = gather(tokens(torch.tensor([0, 3, 1, 1, 2])), Planned(torch.arange(5), 1.0))
    lesson = Classify(torch.ones(4), label_smoothing=0.1, teacher_weight=1.0, temperature=3.0)
    expected = F.cross_entropy(OURS, batch.labels_B, reduction="none")
    torch.testing.assert_close(lesson.check(Answering(torch.arange(5)), batch), expected)


LABELS = ["bad", "good", "so-so"]  # of the models of conftest.py


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A command line over rows that the model of conftest.py can answer; its labels are in another order of rows."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    texts = [f"{a} {b} film {n % 7}" for n, (a, b) in enumerate([("so", "good"), ("very", "bad"), ("a", "fine")] * 20)]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((text, LABELS[-at % 3]) for at, text in enumerate(texts))])
    return [f"data.path={tmp_path / 'rows.csv'}", f"output={tmp_path / 'run'}", *TINY]


def test_a_teacher_answers_in_the_order_of_the_classes_and_once(words, model_folder, tmp_path, monkeypatch):
    run = compose("train", [*words, f"teacher={model_folder}"])
    splits = read_splits(run.data, run.seed)
    splits.labels.reverse()  # as another order of rows might have it
    splits.train.labels = [2 - label for label in splits.train.labels]
    teacher = load(model_folder)
    expected = teacher.logits(splits.train.texts)[:, [teacher.labels.index(label) for label in splits.labels]]
    found = teach(run, splits)
    torch.testing.assert_close(found, expected)
    right = sum(a == b for a, b in zip(found.argmax(-1).tolist(), splits.train.labels, strict=True))
    n = len(splits.train)
    said = f"teacher: {model_folder} answers {n} training rows, {right / n:.1%} of them as they are labelled"
    assert splits.notes[-1] == said
    monkeypatch.setattr("manyheads.training.before.answers", lambda *args: pytest.fail("it was asked twice"))
    assert torch.equal(teach(run, splits), found)
    (cached,) = (tmp_path / "cache").glob("logits-*.safetensors")
    cached.write_bytes(b"damaged")
    monkeypatch.undo()
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    assert torch.equal(teach(run, splits), found)


def test_a_teacher_answers_in_the_precision_of_the_run_and_its_answers_are_kept_apart(words, model_folder, monkeypatch):
    monkeypatch.setattr("manyheads.inference.precision.cpu_multiplies_bf16", lambda: True)
    found = {}
    for precision in ("fp32", "bf16", "auto", "fp32"):
        run = compose("train", [*words, f"teacher={model_folder}", f"hardware.precision={precision}"])
        splits = read_splits(run.data, run.seed)
        found[precision] = teach(run, splits)
    expected = load(model_folder).logits(splits.train.texts)[:, [LABELS.index(label) for label in splits.labels]]
    torch.testing.assert_close(found["fp32"], expected)
    assert torch.equal(found["auto"], found["bf16"])
    assert 1e-4 < float((found["bf16"] - expected).abs().max()) < 0.1


def test_a_student_goes_on_with_the_teacher_it_began_with(words, model_folder, tmp_path, capsys, monkeypatch):
    teacher = tmp_path / "teacher"
    shutil.copytree(model_folder, teacher)
    more = [f"teacher={teacher}", "trainer.max_epochs=4"]
    with monkeypatch.context() as patch:
        patch.setenv(signals.VARIABLE, "step:3:term")
        signals.forget()  # what other tests passed
        with pytest.raises(Stopped):
            main(["train", *words, *more])
    weights = teacher / "model" / "model.safetensors"
    before, tensors = weights.read_bytes(), load_file(weights)
    save_file({name: tensor + 0.5 for name, tensor in tensors.items()}, weights, metadata={"format": "pt"})
    capsys.readouterr()
    assert main(["train", *words, *more, "resume=auto"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"teacher={teacher} is no longer the model that" in said
    assert "put that model back, or start a new run in another folder" in said
    weights.write_bytes(before)
    assert main(["train", *words, *more, "resume=auto"]) == 0


def test_a_student_with_a_teacher_alone_answers_as_it_does(words, model_folder):
    run, teacher = compose("train", [*words, f"teacher={model_folder}"]), load(model_folder)
    splits = read_splits(run.data, run.seed)
    rows = encode(teacher.tokenizer, splits.train.texts, None, splits.train.labels, 12)
    rows.teacher_nC = teach(run, splits)
    torch.manual_seed(0)
    student = assemble(teacher.model, vocab_size=15, n_classes=3, max_length=12)
    lesson = Classify(torch.ones(3), label_smoothing=0.1, teacher_weight=1.0, temperature=2.0)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.01)
    batch = gather(rows, Planned(torch.arange(len(rows)), 1.0))
    for _ in range(60):
        optimizer.zero_grad()
        lesson.learn(student, batch).mean().backward()
        optimizer.step()
    found = student.eval()(batch.ids_N, batch.layout).argmax(-1)
    assert (found == rows.teacher_nC.argmax(-1)).double().mean() > 0.95
    assert (found == rows.labels).double().mean() < 0.7


def test_a_run_learns_from_a_teacher_and_says_so(words, model_folder, tmp_path, capsys):
    more = ["optim.teacher_weight=1", "optim.teacher_temperature=3"]
    assert main(["train", *words, f"teacher={model_folder}", *more]) == 0
    assert re.search(r"answers \d+ training rows, \d", (tmp_path / "run" / "run.log").read_text())
    kept = read_run(tmp_path / "run")
    assert (kept.teacher, kept.optim.teacher_weight) == (str(model_folder), 1.0)
    capsys.readouterr()
    again = [*words[:-1], f"teacher={model_folder}", *more, "resume=auto"]
    assert main(["train", *again]) == 0
    assert "is finished" in capsys.readouterr().out


def refused(sentence, teacher, splits):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_teacher(str(teacher), splits)


def test_what_cannot_teach_is_one_sentence(words, model_folder, pair_folder, text_folder, tmp_path):
    run = compose("train", words)
    splits = read_splits(run.data, run.seed)
    check_teacher(str(model_folder), splits)
    refused(f"teacher={tmp_path / 'no'} is not a run folder: there is no such folder", tmp_path / "no", splits)
    refused(f"teacher={text_folder} has task=seq2seq, but a teacher must be a classifier", text_folder, splits)
    refused(f"teacher={pair_folder} takes pairs of texts, but the data has single texts", pair_folder, splits)
    splits.labels[0] = "other"
    refused(
        f"teacher={model_folder} has the classes bad, good, so-so, but the data has other, good, so-so: name a "
        "run that was trained on the same classes",
        model_folder,
        splits,
    )
