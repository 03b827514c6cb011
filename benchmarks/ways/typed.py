"""The command line of accuracy.py and few_rows.py."""

import argparse
from collections.abc import Iterable

from ways.recipes import SEEDS


def typed_words(
    words: list[str],
    about: str,
    *,
    sets: Iterable[str],
    ways: Iterable[str],
    sizes: Iterable[str],
    minutes: float,
    more: str = "table",
) -> argparse.Namespace:
    """What was typed; an unknown name ends the program. `more`: words in place of sets."""
    known = {"sets": list(sets), "ways": list(ways), "sizes": list(sizes)}
    parser = argparse.ArgumentParser(description=about.splitlines()[0], allow_abbrev=False)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(known['sets'])}; or a word: {more}")
    for name, meaning in (("ways", "in this order"), ("sizes", "rows of each class")):
        of = known[name]
        parser.add_argument(f"--{name}", type=names, default=of, help=f"of {','.join(of)}, joined by commas: {meaning}")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="the largest number of draws, or of runs, of each")
    parser.add_argument("--jobs", type=int, default=1, help="trainings in parallel")
    parser.add_argument("--threads", type=int, default=1, help="of each")
    parser.add_argument("--minutes", type=float, default=minutes, help="after which a training is given up")
    parser.add_argument("--again", action="store_true", help="also run what is there")
    parser.add_argument("--plan", action="store_true", help="name what would be run")
    typed = parser.parse_args(words)
    if typed.sets != ["table"]:
        for name, of in known.items():
            if strange := [one for one in getattr(typed, name) if one not in of]:
                parser.error(f"{strange[0]} is not among {', '.join(of)}")
    return typed


def names(joined: str) -> list[str]:
    return joined.split(",")
