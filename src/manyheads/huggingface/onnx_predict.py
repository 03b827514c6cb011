"""python predict.py "a text" "another text": their labels, by onnxruntime, tokenizers and numpy."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Classifier:
    """Reads a folder: model.onnx, config.json, labels.json, tokenizer.json, and thresholds.json where it has any."""

    def __init__(self, folder: str | Path) -> None:
        files = {name: Path(folder, f"{name}.json") for name in ("config", "labels", "thresholds")}
        held = {name: json.loads(one.read_text(encoding="utf-8")) for name, one in files.items() if one.exists()}
        self.labels, self.thresholds = held["labels"], held.get("thresholds")
        self.session = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")))
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        self.tokenizer.enable_truncation(held["config"]["max_length"], strategy="longest_first")

    def logits(self, texts: list[str]) -> np.ndarray:
        rows = [one.ids for one in self.tokenizer.encode_batch(texts)]
        ids = np.zeros((len(rows), max([1, *map(len, rows)])), dtype=np.int64)
        real = np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
        ids[real] = [token for row in rows for token in row]
        return np.asarray(self.session.run(["logits"], {"ids": ids, "real": real})[0])

    def predict(self, texts: list[str]) -> list[str] | list[list[str]]:
        logits = self.logits(texts)
        if self.thresholds is None:
            return [self.labels[best] for best in logits.argmax(1)]
        given = 1 / (1 + np.exp(-logits.astype(np.float64))) >= np.array(self.thresholds)
        return [[label for label, one in zip(self.labels, row, strict=True) if one] for row in given]


if __name__ == "__main__":
    print(*Classifier(Path(__file__).parent).predict(sys.argv[1:]), sep="\n")
