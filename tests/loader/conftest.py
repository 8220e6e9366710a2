"""What all tests of loaders read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.loaders import write_rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the arrays "x" and "y"; see :mod:`support.loaders`. Tests only read it."""
    directory: Path = tmp_path_factory.mktemp("rows")
    write_rows(directory)
    return directory
