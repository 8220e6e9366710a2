"""Secrets in URLs and options are in no message, and what is no URL or no options is an error that says so."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import gzarr
from gzarr.errors import ArgumentError, GzarrError, StoreError
from gzarr.stores import redaction, resolve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


@pytest.mark.parametrize(
    "options",
    [
        {"service_account": S},
        {"service_account_path": f"/no/{S}"},
        {"google_service_account": S},
        {"application_credentials": S},
        {"service_account": f'{{"private_key": "{S}"}}'},
        {"service_account_key": {"private_key": S}},
        {"service_account_key": f'{{"private_key": "{S}", "client_email": "a", "private_key_id": "b"}}'},
        {"service_account_key": {"private_key": S.encode()}},
        {"token": f"C:\\{S}"},
        {"token": f"/no/{S}"},
        {"token": [S]},
    ],
)
def test_keys_of_google_are_not_shown(options: dict[str, Any]) -> None:
    said_by(lambda: gzarr.open("gs://b/x", storage_options=options))


def test_what_gcsfs_takes_for_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr("gzarr.stores.obstore_module.make", lambda kind, arguments, keywords: given.append(keywords))
    key = tmp_path / "key"
    key.write_text("{}")
    for token, option in (
        ("ya29.A0_a-b/c+d==", "bearer_token"),
        (str(key), "service_account_path"),
        ("no/such.json", "service_account_path"),
        ({"type": "service_account"}, "service_account_key"),
        ("anon", "skip_signature"),
    ):
        gzarr.open_store("gs://b/x", storage_options={"token": token})
        assert set(given[-1]["config"]) == {"bucket", option}
    gzarr.open_store("gs://b/x", storage_options={"service_account": '{"type": "service_account"}'})
    assert given[-1]["config"]["service_account_key"] == '{"type": "service_account"}'


@pytest.mark.parametrize(
    "options",
    [
        {"service_account": S},
        {"google_application_credentials": S},
        {"sse_customer_key_base64": S},
        {"fabric_session_token": S},
        {"client_options": {"default_headers": {"X": S.encode()}}},
        {"client_options": {"proxy_url": S}},
        {"bearer": S},
        {"private": S},
        {"service_account_key": f'{{"a": ["{S}"]}}'},
    ],
)
def test_options_that_hold_secrets(options: dict[str, Any]) -> None:
    assert redaction.without(f"what is {S}?", redaction.secrets_of(options)) == "what is ***?"


@pytest.mark.parametrize("name", ["service_account_key", "token"])
@pytest.mark.parametrize("is_text", [False, True])
def test_what_of_a_key_of_google_is_no_secret(name: str, is_text: bool) -> None:
    key: dict[str, Any] = {
        **{"type": "service_account", "project_id": "my-project", "universe_domain": "googleapis.com"},
        **{"token_uri": "https://oauth2.googleapis.com/token", "private_key": S, "private_key_id": "an-id"},
    }
    other = {"type": "authorized_user", "client_id": "client", "client_secret": "c-secret", "refresh_token": "1//r"}
    for given in (key, {"type": "impersonated_service_account", "source_credentials": other | key}, other | key):
        found = redaction.secrets_of({name: json.dumps(given) if is_text else given})
        public = "the name 'storage.googleapis.com' of my-project: service_account, https://oauth2.googleapis.com/token"
        assert redaction.without(public, found) == public
        assert {S, "an-id"} <= found
    assert {"c-secret", "1//r"} <= found
    # Anything else is kept secret as a whole.
    assert "b-value" in redaction.secrets_of({name: {"type": "x", "a": "b-value"}})


KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "c"}


@pytest.mark.parametrize(
    "value", ["minio.example.org:9000", f"u:{S}@h:9000", "https://", "ftp://h", "http://h:99999", "http://a b", "", 3]
)
@pytest.mark.parametrize(
    ("url", "name", "others"),
    [
        ("s3://b/x", "endpoint", KEYS),
        ("s3://b/x", "aws_endpoint_url_s3", KEYS),
        ("s3://b/x", "metadata_endpoint", {}),
        ("gs://b/x", "base_url", {"skip_signature": True}),
        ("az://b/x", "endpoint", {"account_name": "a", "skip_signature": True}),
        ("az://b/x", "authority_host", {"account_name": "a"}),
    ],
)
def test_an_endpoint_that_is_no_url(
    url: str, name: str, others: dict[str, Any], value: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    message = said_by(lambda: gzarr.open(url, storage_options={**others, name: value}))
    assert f"storage_options[{name!r}] must be the URL of a server, beginning with http:// or https://" in message
    # A panic of Rust would be here.
    assert capfd.readouterr() == ("", "")


def test_an_endpoint_in_the_environment_that_is_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio.example.org:9000")
    message = said_by(lambda: gzarr.open("s3://b/x", storage_options=KEYS))
    assert "the environment variable AWS_ENDPOINT_URL must be the URL of a server" in message


@pytest.mark.parametrize("value", ["proxy", "ftp://h", f"socks5://u:{S}@h:1", "h:99999"])
def test_a_proxy_that_would_be_passed_by(value: str) -> None:
    message = said_by(lambda: gzarr.open("https://h/x", storage_options={"client_options": {"proxy_url": value}}))
    assert "storage_options['client_options']['proxy_url'] must be the URL of a server" in message


@pytest.mark.parametrize("value", ["h:3128", "http://h", "https://u:p@h:1"])
def test_proxies_that_obstore_understands(value: str) -> None:
    gzarr.open_store("https://h/x", storage_options={"client_options": {"proxy_url": value}})


@pytest.mark.parametrize("start", ["s3://b/p/a", "https://h/p/a", "az://c/p/a", "fsspec+memory://b/p/a"])
@pytest.mark.parametrize("name", ["zarr.json", ".zarray", "%2Ezgroup", "zarr.json/"])
def test_the_url_of_a_document(start: str, name: str) -> None:
    if start.startswith("fsspec"):
        pytest.importorskip("fsspec")
    message = said_by(lambda: gzarr.open(f"{start}/{name}"))
    assert f"pass the folder that holds it: '{start.removeprefix('fsspec+')}'" in message


@pytest.mark.parametrize("route", ["memory://{}", "fsspec+memory://{}", "simplecache::memory://{}", "zip://{}"])
def test_a_node_in_a_url_is_percent_decoded(route: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    is_archive = route.startswith("zip")
    root = f"{tmp_path}/x.zip" if is_archive else "percent-decoded"
    store: Any = gzarr.ZipStore(root, mode="w") if is_archive else gzarr.open_store(f"memory://{root}", read_only=False)
    for path in ("raster data", "a/b", "100%25"):
        gzarr.create_array(store, path=path, data=[1, 2, 3], overwrite=True)
    if is_archive:
        store.close()
    for fragment in ("raster%20data", "raster data", "a%2Fb", "a/b", "/a/b/", "100%2525"):
        assert gzarr.open_array(f"{route.format(root)}#{fragment}").shape == (3,)
