"""The tables of supported arrays in the documentation, against actual reads and writes."""

from __future__ import annotations

import pytest
from support import support_table


def test_names() -> None:
    assert support_table.chain_name(["transpose(1, 0)", "bytes(big)", "blosc(lz4, bitshuffle 4)"]) == "blosc(lz4)"
    assert support_table.chain_name(["sharding_indexed(2×3: bytes + zstd)", "gzip"]) == "sharding_indexed(zstd) + gzip"
    assert support_table.chain_name(["sharding_indexed(2: bytes)"]) == "sharding_indexed(bytes)"
    assert support_table.chain_name(["transpose(1, 0)", "bytes"]) == "transpose"


@pytest.mark.filterwarnings("ignore")
def test_the_page_says_what_is_so() -> None:
    """To update the page after a failure: ``PYTHONPATH=tests python -m support.support_table``."""
    recorded = support_table.PAGE.read_text(encoding="utf-8")
    if support_table.versions() in recorded:
        assert support_table.page() == recorded
    else:
        # Another version of a peer may do something else.
        lines = "\n".join(support_table.tables(list(support_table.opened()), with_peers=False))
        assert support_table.without_peers(lines) == support_table.without_peers(recorded)
