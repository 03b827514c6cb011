"""Run by test_shares.py: as tests/core/inference/sharing.py, by a model that answers texts by texts.

python sharing.py FOLDER N TRANSLATOR
"""

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from manyheads.config import PredictConfig
from manyheads.config.inference import InferenceBatch
from manyheads.inference.predict import predict
from manyheads.plugins.language.config import GenerateConfig
from tests.core.inference.sharing import CPU, PAIRS, TEXTS, TOKENS, answers, evaluation, fork


def texts(model: Any, n: int) -> list[Any]:
    said = model.generate(TEXTS[:n], tokens=TOKENS)
    return [said, model.follow(TEXTS[:n], PAIRS[:n], tokens=TOKENS)]


def main() -> None:
    Figure.savefig = lambda figure, file, **how: file.write(b"PNG")  # pictures are those of one process in core, too
    folder, several, translator = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

    def do(rank: int, n_ranks: int) -> dict[str, Any]:
        seen: list[list[int]] = []
        said = answers(translator, texts, seen)
        Path("few.txt").write_text("\n".join(TEXTS))
        few: dict[str, Any] = {"batch": InferenceBatch(tokens=200), "hardware": CPU}
        short = GenerateConfig(max_length=3)
        predict(PredictConfig(run=str(translator), input="few.txt", output="texts.jsonl", generate=short, **few))
        evaluation(translator, "texts")
        return {"answers": {"texts": said}, "seen": {"texts": seen}}

    fork(do, folder, several)


if __name__ == "__main__":
    main()
