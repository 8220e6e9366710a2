"""Fixtures of several modules."""

from __future__ import annotations

import pytest

from gzarr.stores import connections, curl_threads


@pytest.fixture(params=["libcurl", "obstore"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What sends requests, and knows nothing of a server that has had the same port."""
    monkeypatch.setattr(connections, "_servers", {})
    way: str = request.param
    if way == "obstore":
        monkeypatch.setattr(curl_threads, "available", lambda: False)
    else:
        assert curl_threads.available()
    return way
