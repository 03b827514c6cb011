"""python predict.py "a text" "another text": their labels, by torch and tokenizers."""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer


class Classifier:
    """Reads a folder: model.pt2, config.json, labels.json, tokenizer.json, and thresholds.json where it has any."""

    def __init__(self, folder: str | Path) -> None:
        files = {name: Path(folder, f"{name}.json") for name in ("config", "labels", "thresholds")}
        held = {name: json.loads(one.read_text(encoding="utf-8")) for name, one in files.items() if one.exists()}
        self.labels, self.thresholds = held["labels"], held.get("thresholds")
        self.network = torch.export.load(Path(folder, "model.pt2")).module()
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        self.tokenizer.enable_truncation(held["config"]["max_length"], strategy="longest_first")

    @torch.no_grad()
    def logits(self, texts: list[str]) -> torch.Tensor:
        rows = [torch.tensor(one.ids) for one in self.tokenizer.encode_batch(texts)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return self.network(ids, torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows]))

    def predict(self, texts: list[str]) -> list[str] | list[list[str]]:
        logits = self.logits(texts)
        if self.thresholds is None:
            return [self.labels[best] for best in logits.argmax(1).tolist()]
        given = logits.double().sigmoid() >= torch.tensor(self.thresholds, dtype=torch.float64)
        return [[label for label, one in zip(self.labels, row, strict=True) if one] for row in given.tolist()]


if __name__ == "__main__":
    print(*Classifier(Path(__file__).parent).predict(sys.argv[1:]), sep="\n")
