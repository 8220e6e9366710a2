"""Secrets in URLs and options are in no message, and what is no URL or no options is an error that says so."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

import gzarr
from gzarr.errors import ArgumentError, GzarrError, StoreError
from gzarr.stores import redaction, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

S = "SECRETpw"


def said_by(work: Callable[[], object]) -> str:
    with pytest.raises(GzarrError) as info:
        work()
    said = "".join(traceback.format_exception(info.value))
    # The lines of this test are in a traceback, and its names, but no secret.
    assert S not in said
    return str(info.value)


@pytest.mark.parametrize(
    "url",
    [
        f"minio://AK:{S}@h/x",
        f"htps://u:{S}@h/x?sig={S}",
        f"htps://u:x/{S}@h/x",
        f"htps://u:x?{S}@h/x",
        f"htps://h/x?sig='{S}'){S}",
        f"https:/u:{S}@host/x",
        f"https:///u:{S}@host/x",
        f"http://host:{S}/x",
        f"http://u:x/{S}@host/x",
        f"s3://{S}:x/y",
        f"gs://u:{S}@bucket/x",
        f"az://{S}:x@acct/x",
        f"abfs://c:{S}@acct.dfs.core.windows.net/x",
        f"file://u:{S}@host/x?{S}",
        f"n5://minio://u:{S}@h/x",
        f"zip://minio://u:{S}@h/x.zip?sig={S}",
        f"zip::s3://b/x.zip?X-Amz-Signature={S}",
        f"https://host/x?sig={S}",
        f"https://u:{S}@host/x.zip?sig={S}",
    ],
)
def test_secrets_in_urls_are_not_shown(url: str) -> None:
    for work in (
        lambda: gzarr.open(url),
        lambda: gzarr.open_store(url),
        lambda: gzarr.create_array(url, data=[1]),
        lambda: gzarr.CachedStore(url, "cache", 1 << 20),
    ):
        said_by(work)


def test_a_url_with_a_node_is_no_store() -> None:
    pytest.importorskip("fsspec")
    message = said_by(lambda: gzarr.open_store(f"fsspec+memory://u:{S}@h/x#a"))
    assert "names the node 'a'" in message


@pytest.mark.parametrize("token", [f'{{"private_key": "{S}"}}', f' {{"type": "{S}"'])
def test_a_token_of_gcsfs_as_json(token: str) -> None:
    message = said_by(lambda: gzarr.open("gs://b/x", storage_options={"token": token}))
    assert "service account" in message
    assert "Unable to open" not in message


def test_options_that_obstore_repeats_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise ValueError(f"what is {S}")

    monkeypatch.setattr("gzarr.stores.obstore_module.make", refuse)
    options = {"account_name": "a", "account_key": S}
    message = said_by(lambda: gzarr.open("az://c/x", storage_options=options))
    assert "what is ***" in message


def test_a_plugin_that_repeats_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    class Target:
        @staticmethod
        def from_url(url: str, read_only: bool) -> None:
            raise ValueError(f"what is {url}?")

    class Plugin:
        distribution = "some 1"
        target = Target

    monkeypatch.setattr(resolve, "load", lambda group, name: Plugin)
    message = said_by(lambda: gzarr.open("made-up://u:SECRET" + f"pw@h/x?sig={S}"))
    assert "cannot open 'made-up://h/x': ValueError: what is made-up://h/x" in message
    with pytest.raises(StoreError) as info:
        gzarr.open("made-up://h/x")
    assert isinstance(info.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@h/x?a#b", "https://h/x"),
        ("http://h:8080/a@b/x", "http://h:8080/a@b/x"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("file:///u@x/y", "file:///u@x/y"),
        ("C:/a@b/c?d", "C:/a@b/c?d"),
        ("folder?/a@b", "folder?/a@b"),
        ("zip://s::simplecache::http://u:p@h/x?a", "zip://s::simplecache::http://h/x"),
    ],
)
def test_what_is_shown_of_a_url(text: str, shown: str) -> None:
    assert redaction.named(text) == repr(shown)


@pytest.mark.parametrize(
    "url", ["http://[::1/x.zarr", "https://[::1/x.zip", "zip::https://[::1/x.zip", "file://[::1/x"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ArgumentError, match="no valid host or port"):
        gzarr.open(url)


@pytest.mark.parametrize("options", ["a=b", [("region", "a")], 3])
@pytest.mark.parametrize("where", ["s3://b/x", "https://h/x.zip", "memory://x", "x.zarr"])
def test_options_that_are_no_dict(where: str, options: Any) -> None:
    with pytest.raises(ArgumentError, match="storage_options= must be a dict"):
        gzarr.open(where, storage_options=options)


def test_the_name_of_a_store_object_of_obstore() -> None:
    store = pytest.importorskip("obstore.store").HTTPStore(f"https://h/x?sig={S}")
    assert repr(gzarr.open_store(store)) == "<gzarr.HttpStore 'https://h/x'>"


@pytest.mark.parametrize("name", ["a\tb", "a\x01", "\x7f"])
def test_names_that_object_stores_do_not_take(name: str) -> None:
    options = {"endpoint": "http://127.0.0.1:9", "region": "a", "access_key_id": "a", "secret_access_key": "b"}
    store: Any = gzarr.open_store("s3://bucket/x", read_only=False, storage_options=options)
    for work in (lambda: store.set(name, b""), lambda: store.get(name), lambda: gzarr.open(store, path=name)):
        with pytest.raises(StoreError, match="takes no control characters"):
            work()
