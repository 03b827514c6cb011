"""What tests of data share."""

from tests.core.data.conftest import complaint, two_classes, write  # noqa: F401 - fixtures
