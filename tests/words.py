"""Words that are easily misread, in the source, the settings and the documentation: `make check` lists where they are.

Each pattern has the words that say it better. Texts of data and quotations of other people are excepted by name.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BETTER = {
    r"\bbeside\b": "next to, compared with, in addition to",
    r"\bso many\b": "that number of",
    r"\b(is|are|be|was|were) told\b|\btold by\b": "is given, is reported",
    r"\bbehind (the|it|each|which|this|that)\b": "after",
    r"\bwhat is asked\b|\bwhat was asked\b": "the request, the settings",
    r"\bleaves? \w+ away\b|\bleft away\b": "omit",
    r"\bno number\b|\bno numbers\b": "non-finite, NaN",
    r"\bas of\b": "like, since",
    r"\b(goes|go|going|gone|went) on\b": "resume, continue",
    r"\b(is|are|be|was|were) worth\b|\bworth (of|as)\b": "gain, value",
    r"\bcannot be told from\b|\bcannot be told apart\b": "not significantly different from",
    r"\bthought over\b|\bpull to zero\b|\bturned round\b": "a term of the field",
}
FILES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
FOLDERS = {"src": "*.py", "docs": "*.md", "conf": "*.yaml", "examples": "*.py", "benchmarks": "*.py"}
EXCEPTED = {
    "docs/results/lab-notes.md",
    "benchmarks/long_range.py",
    "src/manyheads/data/formats/demo.py",
}  # history; generated texts


def main() -> int:
    paths = [ROOT / name for name in FILES]
    for folder, pattern in FOLDERS.items():
        paths += sorted((ROOT / folder).rglob(pattern))
    n_found = 0
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if name in EXCEPTED:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for pattern, better in BETTER.items():
                if found := re.search(pattern, line, re.IGNORECASE):
                    print(f"{name}:{number}: {found[0]!r}: better {better}")
                    n_found += 1
    return min(1, n_found)


if __name__ == "__main__":
    sys.exit(main())
