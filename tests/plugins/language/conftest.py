"""What these tests share with those of the blocks, of data and of several processes."""

from tests.data.conftest import complaint, two_classes, write  # noqa: F401  fixtures
from tests.nn.conftest import _seed, _varlen_kernels, choices, small, torchs_layer  # noqa: F401  fixtures
from tests.ranks.conftest import folders, start, two  # noqa: F401  fixtures
from tests.training.conftest import small_run  # noqa: F401  a fixture
