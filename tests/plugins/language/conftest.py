"""What the tests of the networks share with those of the blocks and of data."""

from tests.data.conftest import complaint, two_classes, write  # noqa: F401  fixtures
from tests.nn.conftest import _seed, _varlen_kernels, choices, small, torchs_layer  # noqa: F401  fixtures
