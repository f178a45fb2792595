"""The studio of tests/fixtures, made once for this package."""

from __future__ import annotations

import pytest
from studio import Studio, make_studio


@pytest.fixture(scope="package")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Studio:
    """Photographs, their store, and models of it."""
    return make_studio(tmp_path_factory.mktemp("studio"))
