# ruff: noqa: I001 - imports of one variant may stand alone
"""Labels of texts by the model of this folder. README.md says what has to be installed.

# if single
python predict.py "a text" "another text"
# if pairs
python predict.py "a text" "its pair" "another text" "its pair"
# end
python predict.py --file rows.csv labels.csv
"""

import argparse
import csv
import json

# if terms
from collections import Counter

# end
from pathlib import Path

# if words
from unicodedata import category, name

# if terms
from unicodedata import normalize
from zlib import crc32
# end

import numpy as np

# if onnx
import onnxruntime

# if torch
import torch

# end
from tokenizers import Tokenizer


class Classifier:
    """Asked by a list of `texts`, and a list of their `pairs`, the second texts, where the model reads pairs."""

    def __init__(self, folder: str | Path, batch_size: int = 32) -> None:
        self.labels: list[str] = json.loads(Path(folder, "labels.json").read_text(encoding="utf-8"))
        self.columns: dict = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))["columns"]
        self.batch_size = batch_size
        # if any
        self.thresholds = json.loads(Path(folder, "thresholds.json").read_text(encoding="utf-8"))["both"]
        # end
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        # if special
        self.tokenizer.encode_special_tokens = True  # [SEP] and other marks that are typed in a text are text
        # if onnx
        self.session = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")))
        # if torch
        self.program = torch.export.load(Path(folder, "model.pt2")).module()
        # end

    def predict(self, texts: list[str], pairs: list[str] | None = None) -> list:
        # if one
        """The label of each text."""
        # if any
        """The labels of each text: a list, which may be empty."""
        # end
        return self.choose(self.probabilities(texts, pairs))

    def choose(self, probabilities: np.ndarray) -> list:
        # if one
        """The likeliest label of each row."""
        return [self.labels[at] for at in probabilities.argmax(axis=1)]
        # if any
        """The labels of each row whose probability reaches their threshold."""
        return [[self.labels[at] for at in row.nonzero()[0]] for row in probabilities >= self.thresholds]
        # end

    def top_k(self, texts: list[str], pairs: list[str] | None = None, k: int = 3) -> list[list[tuple[str, float]]]:
        """The k likeliest labels of each text with their probabilities, the likeliest first."""
        named = [zip(self.labels, row.tolist(), strict=True) for row in self.probabilities(texts, pairs)]
        return [sorted(row, key=lambda one: -one[1])[:k] for row in named]

    def probabilities(self, texts: list[str], pairs: list[str] | None = None) -> np.ndarray:
        """A row for each text, a column for each label."""
        logits = self.logits(texts, pairs)
        # if one
        exp = np.exp(logits - logits.max(axis=1, keepdims=True))
        return exp / exp.sum(axis=1, keepdims=True)
        # if any
        return np.exp(-np.logaddexp(0, -logits))  # the sigmoid
        # end

    def logits(self, texts: list[str], pairs: list[str] | None = None) -> np.ndarray:
        """As `probabilities`. A batch holds texts of similar length, as all are padded to the longest of it."""
        logits = np.zeros((len(texts), len(self.labels)))
        by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(texts), self.batch_size):
            rows = by_length[start : start + self.batch_size]
            logits[rows] = self.run([texts[row] for row in rows], pairs and [pairs[row] for row in rows])
        return logits

    def run(self, texts: list[str], pairs: list[str] | None) -> np.ndarray:
        """The logits of one batch."""
        encoded = self.tokenizer.encode_batch(list(zip(texts, pairs, strict=True)) if pairs else texts)
        inputs = {"ids": np.array([one.ids for one in encoded], dtype=np.int64)}
        inputs["real"] = np.array([one.attention_mask for one in encoded], dtype=bool)
        # if pairs
        inputs["segments"] = types = np.array([one.type_ids for one in encoded], dtype=np.int64)
        # if sequences
        texts_of_tokens = np.array([[text or 0 for text in one.sequence_ids] for one in encoded], dtype=np.int64)
        texts_of_tokens = np.maximum.accumulate(texts_of_tokens, axis=1)  # marks belong to the text before them
        inputs["segments"] = texts_of_tokens + 2 * (texts_of_tokens != types)
        # if terms
        terms = []
        for row, text in enumerate(texts):
            terms += [(row, term, count) for term, count in self.count_terms(text).items()]
        inputs["terms"] = np.array(terms, dtype=np.int64).reshape(-1, 3)
        # if onnx
        return np.asarray(self.session.run(["logits"], inputs)[0])
        # if torch
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return self.program(**tensors)[0].detach().numpy()
        # if terms

    def count_terms(self, text: str) -> Counter[int]:
        """How often a text has each term of the linear model; a term is known by its checksum."""
        text = " ".join(normalize("NFC", normalize("NFC", text).casefold()).split())
        terms = []
        # if words
        letters = ""
        for letter in text:
            if letter != "\u200b" and (category(letter) == "Cf" or "VARIATION SELECTOR" in name(letter, "")):
                continue  # it has no width
            letters += letter if letter.isalnum() or letter == "_" or category(letter)[0] == "M" else " "
        words = letters.split()
        terms += words
        terms += [f"{words[at]} {words[at + 1]}" for at in range(len(words) - 1)]
        # if runs
        spaced = f" {text} " if text else ""
        for n in (2, 3, 4):
            terms += [f"\n{spaced[at : at + n]}" for at in range(len(spaced) - n + 1)]
        # if terms
        return Counter(crc32(term.encode("utf-8", "surrogatepass")) for term in terms)
        # end


def answer_file(classifier: Classifier, source: str, target: str) -> None:
    """Predictions for the rows of a .csv or .tsv, or for the lines of any other file; none where a text is empty."""
    # if joined
    parts = classifier.columns["text"]
    classifier.columns["text"] = " + ".join(parts)
    # if single
    columns = [classifier.columns["text"]]
    # if pairs
    columns = [classifier.columns["text"], classifier.columns["text_pair"]]
    # end
    with open(source, encoding="utf-8-sig", newline="\n") as file:
        if source.endswith((".csv", ".tsv")):
            rows = list(csv.DictReader(file, delimiter="," if source.endswith(".csv") else "\t"))
        else:
            # if single
            rows = [{columns[0]: line.rstrip("\r\n")} for line in file]
            # if pairs
            rows = [dict(zip(columns, line.rstrip("\r\n").split("\t"), strict=True)) for line in file]
            # end
    # if joined
    for row in rows:
        cells = [(row.get(part) or "").replace("\u241e", " ").strip() for part in parts]
        row.setdefault(columns[0], " \u241e ".join(cells).strip() if any(cells) else "")
    # end
    names = [*(rows[0] if rows else columns), "prediction", *(f"p_{label}" for label in classifier.labels)]
    filled = [row for row in rows if all((row[column] or "").strip() for column in columns)]
    probabilities = classifier.probabilities(*([row[column] for row in filled] for column in columns))
    for row, chosen, values in zip(filled, classifier.choose(probabilities), probabilities, strict=True):
        # if one
        row["prediction"] = chosen
        # if any
        row["prediction"] = "|".join(chosen)
        # end
        row.update((f"p_{label}", value) for label, value in zip(classifier.labels, values, strict=True))
    with open(target, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, delimiter="\t" if target.endswith(".tsv") else ",")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--file", nargs=2, metavar=("INPUT", "OUTPUT"))
    arguments = parser.parse_args()
    classifier = Classifier(Path(__file__).parent)
    if arguments.file:
        answer_file(classifier, *arguments.file)
    else:
        # if single
        print(*classifier.predict(arguments.texts), sep="\n")
        # if pairs
        print(*classifier.predict(arguments.texts[::2], arguments.texts[1::2]), sep="\n")
        # end
