"""Every field of recurrent encoders arrives in the module."""

from tests.core.nn.test_assemble import assert_differ


def test_every_field_changes_the_model(small):
    assert_differ(small(), small(encoder="lstm"))
    assert_differ(small(encoder="gru"), small(encoder="gru", bidirectional=False))
