"""The calls of the verbs, in their place."""

from tests.core.cli.sweeping import calls  # noqa: F401  a fixture
