"""`python predict.py "a text" "another text"`, or `"a text" "its pair"`: their labels. README.md says what it needs."""

import json
import sys

# if terms
from collections import Counter

# end
from pathlib import Path

# if terms
from unicodedata import category, name, normalize
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
    def __init__(self, folder: str | Path) -> None:
        self.labels = np.array(json.loads(Path(folder, "labels.json").read_text(encoding="utf-8")), dtype=object)
        # if any
        self.thresholds = json.loads(Path(folder, "thresholds.json").read_text(encoding="utf-8"))["both"]
        # end
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        # if special
        self.tokenizer.encode_special_tokens = True  # a mark that is typed in a text is text
        # end
        # if onnx
        self.session = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")))
        # if torch
        self.program = torch.export.load(Path(folder, "model.pt2")).module()
        # end

    def logits(self, texts: list[str], pairs: list[str] | None = None) -> np.ndarray:
        rows = self.tokenizer.encode_batch(texts if pairs is None else list(zip(texts, pairs, strict=True)))
        inputs = {"ids": np.array([of.ids for of in rows]), "real": np.array([of.attention_mask for of in rows], bool)}
        # if pairs
        inputs["segments"] = types = np.array([of.type_ids for of in rows])
        # if untold
        second = np.maximum.accumulate([[text or 0 for text in of.sequence_ids] for of in rows], axis=1)
        inputs["segments"] = second + 2 * (second != types)
        # if terms
        inputs["terms"] = np.array([one for at in enumerate(texts) for one in self.counted(*at)], int).reshape(-1, 3)
        # if onnx
        return np.asarray(self.session.run(["logits"], inputs)[0], dtype=float)
        # if torch
        return self.program(**{of: torch.from_numpy(one) for of, one in inputs.items()})[0].detach().double().numpy()
        # if terms

    def counted(self, row: int, text: str) -> list[tuple[int, int, int]]:
        text, found = " ".join(["", *normalize("NFC", normalize("NFC", text).casefold()).split(), ""]), []
        # if words
        seen = [c for c in text if c == "\u200b" or (category(c) != "Cf" and "VARIATION SEL" not in name(c, ""))]
        words = "".join(c if c.isalnum() or c == "_" or category(c)[0] == "M" else " " for c in seen).split()
        found += [*words, *(" ".join(words[at : at + 2]) for at in range(len(words) - 1))]
        # if runs
        found += [f"\n{text[at : at + n]}" for n in (2, 3, 4) for at in range(len(text) - n + 1) if len(text) > 2]
        # if terms
        return [(row, *one) for one in Counter(crc32(of.encode("utf-8", "surrogatepass")) for of in found).items()]
        # end

    def predict(self, texts: list[str], pairs: list[str] | None = None) -> list[str] | list[list[str]]:
        logits = self.logits(texts, pairs) if texts else np.zeros((0, 1))
        # if any
        return [self.labels[1 / (1 + np.exp(-of)) >= self.thresholds].tolist() for of in logits]
        # if one
        return self.labels[logits.argmax(1)].tolist()
        # end


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # labels that the terminal lacks
    # if single
    print(*Classifier(Path(__file__).parent).predict(sys.argv[1:]), sep="\n")
    # if pairs
    print(*Classifier(Path(__file__).parent).predict(sys.argv[1::2], sys.argv[2::2]), sep="\n")
    # end
