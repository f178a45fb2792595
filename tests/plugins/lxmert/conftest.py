"""Fixtures of the tests of LXMERT."""

from tests.plugins.lxmert.official import official

__all__ = ["official"]
