"""Blocks of users, as docs/extending.md shows them, are compared and searched like those of the package."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import manyheads.plugin as plugin
from manyheads.cli.compose import compose

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "my_parts"}
    exec(compile(code, "my_parts", "exec"), names)
    plugin.register(names["PLUGIN"])
    yield
    plugin.unregister(names["PLUGIN"].name)


def test_own_choices_and_options_are_compared_and_searched():
    found = compose("ablate", ["vary=model.score", "values=[scaled_dot,bilinear]"])
    assert [found.run(one).model.score for one in found.variants()] == ["scaled_dot", "bilinear"]
    varied = ["vary=model.pooling_options.skip", "values=[0,2]", "model.pooling=last"]
    found = compose("ablate", varied)
    assert [found.run(one).model.pooling_options["skip"] for one in found.variants()] == [0, 2]
    tuned = compose("tune", ["model.pooling=last", "model.pooling_options.skip=0,2"])
    assert tuned.search == {"model.pooling_options.skip": [0, 2]}
