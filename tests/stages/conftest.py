"""Fixtures of the tests of stages."""

from tests.stages.fakes import world  # noqa: F401
