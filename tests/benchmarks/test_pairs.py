"""The tasks of pairs: what is answered was not learnt from, and a larger draw holds the smaller ones."""

import csv
from collections import Counter

import pairs
import pytest


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "data_folder", lambda: tmp_path)
    of = {"sst2": ["neg", "pos"], "banking77": ["card", "cash", "loan"], "sick": ["no", "yes"]}
    for name, labels in of.items():
        (tmp_path / name).mkdir()
        with (tmp_path / name / "train.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["text", "text_pair", "label"])
            n_texts = 90 if name == "sick" else 120  # so that some pairs of sick have a text in common
            table.writerows([f"{name} {at % n_texts}", f"other {at}", labels[at % len(labels)]] for at in range(120))
    return tmp_path


@pytest.mark.parametrize("name", pairs.TASKS)
def test_no_text_is_both_learnt_from_and_answered(name, data):
    for draw in range(3):
        learnt, answered = pairs.rows_of(name, draw)
        texts = [{row[column] for row in rows for column in ("text", "text_pair")} for rows in (learnt, answered)]
        assert not texts[0] & texts[1]
        assert learnt
        assert answered
        assert (learnt, answered) == pairs.rows_of(name, draw)


def test_pairs_have_the_label_that_their_texts_say(data):
    labels = {f"sst2 {at}": ["neg", "pos"][at % 2] for at in range(120)}
    learnt, _ = pairs.rows_of("sst2", 0)
    assert all(row["label"] == f"{labels[row['text']]} first" for row in learnt)
    assert all(labels[row["text"]] != labels[row["text_pair"]] for row in learnt)
    of = ["card", "cash", "loan"]
    for row in pairs.rows_of("banking77", 0)[0]:
        one, other = (of[int(row[column].split()[1]) % 3] for column in ("text", "text_pair"))
        assert row["label"] == ("same" if one == other else "other")


def test_so_many_rows_of_each_class_are_drawn():
    rows = [{"label": "ab"[at % 2], "text": str(at)} for at in range(20)]
    validation, train = pairs.first_of_each(rows, 0, 2), pairs.first_of_each(rows, 2, 7)
    assert Counter(row["label"] for row in train) == {"a": 5, "b": 5}
    assert [row["text"] for row in validation] == ["0", "1", "2", "3"]
    assert train == pairs.first_of_each(rows, 2, 9)[:10]
