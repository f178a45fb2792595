"""Fixtures of the tests of stages."""

from tests.runner.fakes import world  # noqa: F401
