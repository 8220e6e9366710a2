"""Credentials of S3 from the files of AWS."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from support import servers
from support.fault_proxy import FaultProxy

import gzarr
from gzarr.errors import ArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "bucket"
URL = f"s3://{BUCKET}/a"
CREDENTIALS = f"""
[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = {servers.S3_SECRET}
[work]
aws_access_key_id = WORKKEY
aws_secret_access_key = {servers.S3_SECRET}
aws_session_token = WORKTOKEN
region = eu-west-1
[empty]
region = eu-west-1
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        gzarr.create_array(URL, data=[1, 2], storage_options=servers.s3_options(f"http://127.0.0.1:{address[1]}"))
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server) as made:
        yield made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(CREDENTIALS)
    return tmp_path


def read(proxy: FaultProxy, **options: Any) -> Any:
    return gzarr.open_array(URL, storage_options={"endpoint": proxy.url, **options})


def signatures(proxy: FaultProxy) -> set[str]:
    """Return key and region of the signatures of all requests."""
    # In the header, or in the URL.
    shown = [seen.headers.get("authorization") or unquote(seen.path) for seen in proxy.seen]
    texts = [text.partition("Credential=")[2].split("/") for text in shown]
    return {f"{text[0]} {text[2]}" for text in texts}


def tokens(proxy: FaultProxy) -> set[str]:
    """Return the session tokens of all requests."""
    urls = [parse_qs(urlsplit(seen.path).query).get("X-Amz-Security-Token", [""])[0] for seen in proxy.seen]
    return {seen.headers.get("x-amz-security-token") or url for seen, url in zip(proxy.seen, urls, strict=True)}


def test_the_default_profile(proxy: FaultProxy) -> None:
    array = read(proxy)
    assert array[...].tolist() == [1, 2]
    assert signatures(proxy) == {"DEFAULTKEY us-east-1"}
    assert pickle.loads(pickle.dumps(array))[...].tolist() == [1, 2]


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_named_profile(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    options = {"profile": "work"} if way == "option" else {}
    if way == "variable":
        monkeypatch.setenv("AWS_PROFILE", "work")
    assert read(proxy, **options)[...].tolist() == [1, 2]
    assert signatures(proxy) == {"WORKKEY eu-west-1"}
    assert tokens(proxy) == {"WORKTOKEN"}


def test_what_is_said_explicitly_comes_first(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"access_key_id": "GIVENKEY", "secret_access_key": "x"}
    assert read(proxy, **given, region="us-west-2")[...].tolist() == [1, 2]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "VARIABLEKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert read(proxy)[...].tolist() == [1, 2]
    assert read(proxy, profile="work", region="us-west-2")[...].tolist() == [1, 2]
    assert signatures(proxy) == {"GIVENKEY us-west-2", "VARIABLEKEY us-east-1", "WORKKEY us-west-2"}


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_profiles_that_cannot_be_used(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ArgumentError, match=f"profile '{name}'"):
        read(proxy, profile=name)
    monkeypatch.setenv("AWS_PROFILE", name)
    with pytest.raises(ArgumentError, match=f"profile '{name}'"):
        read(proxy)
    assert not proxy.seen


def test_a_file_that_is_damaged(proxy: FaultProxy, home: Path) -> None:
    (home / ".aws/credentials").write_text(f"aws_secret_access_key = {servers.S3_SECRET}")
    with pytest.raises(ArgumentError, match="profile 'default'") as caught:
        read(proxy)
    assert servers.S3_SECRET not in str(caught.value)


def test_without_botocore(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ArgumentError, match="pip install boto3"):
        read(proxy, profile="work")
    # The server of credentials that a machine in the cloud has.
    nowhere = f"http://127.0.0.1:{servers.free_port()}"
    with pytest.raises(StoreError, match="with boto3 installed"):
        read(proxy, region="us-east-1", metadata_endpoint=nowhere)


def test_the_server_of_a_profile(proxy: FaultProxy, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"http://127.0.0.1:{servers.free_port()}"
    (home / ".aws/config").write_text(
        f"[profile work]\nendpoint_url = {proxy.url}\n"
        f"[default]\nendpoint_url = {nowhere}\nservices = ours\n[services ours]\ns3 =\n  endpoint_url = {proxy.url}\n"
    )
    for options in ({"profile": "work"}, {}):
        assert gzarr.open_array(URL, storage_options=options)[...].tolist() == [1, 2]
    # What is given explicitly comes first.
    other = "http://127.0.0.1:1"
    given: Any = gzarr.open_store(URL, storage_options={"profile": "work", "endpoint": other})
    assert other in given.location()
    monkeypatch.setenv("AWS_ENDPOINT_URL", other)
    found: Any = gzarr.open_store(URL, storage_options={"profile": "work"})
    assert other in found.location()
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    ignoring: Any = gzarr.open_store(URL, storage_options={"profile": "work"})
    assert "127.0.0.1" not in ignoring.location()


def test_the_server_of_a_profile_that_is_no_url(home: Path) -> None:
    (home / ".aws/config").write_text("[profile work]\nendpoint_url = minio\n")
    with pytest.raises(ArgumentError, match="the profile's endpoint_url must be the URL"):
        gzarr.open_store(URL, storage_options={"profile": "work"})
