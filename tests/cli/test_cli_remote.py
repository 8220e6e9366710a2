"""Every command over a real S3 server: exit codes, output, options, and no secrets in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import servers
from support.copied_hierarchies import check_same, hierarchy
from support.fault_proxy import FaultProxy

import gzarr
from gzarr.arrays import storage
from gzarr.cli.locations import is_url, options_of
from gzarr.cli.main import main
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    #: Exit code, standard output and standard error.
    Run = Callable[..., tuple[int, str, str]]

BUCKET = "commands"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        yield address


@pytest.fixture
def options(server: tuple[str, int]) -> dict[str, Any]:
    return servers.s3_options(f"http://{server[0]}:{server[1]}")


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/" + "".join(c if c.isalnum() else "-" for c in request.node.name)


def flags(options: dict[str, Any], flag: str = "--storage-option") -> list[str]:
    return [word for name, value in options.items() for word in (flag, f"{name}={value}")]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        output, errors = capsys.readouterr()
        assert servers.S3_SECRET not in output + errors
        return code, output, errors

    return call


def rows(text: str) -> dict[str, str]:
    return {label.strip(): value for label, _, value in (line.partition(" : ") for line in text.splitlines())}


def saved(url: str, options: dict[str, Any]) -> tuple[gzarr.Group, np.ndarray[Any, Any]]:
    """Store a group with a chunked and a sharded array."""
    data = np.random.default_rng(3).integers(0, 50, (60, 40), dtype="i4")
    group = gzarr.create_group(url, attributes={"title": "t"}, storage_options=options)
    group.create_array("chunked", data=data, chunks=(20, 20))
    group.create_array("below/sharded", data=data, chunks=(10, 10), shards=(30, 20))
    return group, data


def test_info_and_tree(run: Run, url: str, options: dict[str, Any]) -> None:
    saved(url, options)
    code, output, errors = run("info", url, "--path", "chunked", *flags(options))
    assert (code, errors) == (0, "")
    assert rows(output)["Chunks stored"] == "6 of 6 (100.0%)"
    code, output, _ = run("info", f"{url}#below/sharded", "--strict", *flags(options))
    assert code == 0
    assert rows(output)["Shards stored"] == "4 of 4 (100.0%)"
    assert "No departures" in output
    code, output, _ = run("info", url, "--strict", *flags(options))
    assert code == 0
    assert "chunked" in output
    code, output, _ = run("tree", url, *flags(options))
    assert code == 0
    assert [line.split()[1] for line in output.splitlines()[1:]] == ["below", "└──", "chunked"]
    assert run("info", url, "--path", "absent", *flags(options))[0] == 1


def test_info_of_many_chunks(run: Run, url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    saved(url, options)
    # As if the listing took longer.
    monkeypatch.setattr(storage, "LISTING_S", 0.0)
    code, output, _ = run("info", url, "--path", "chunked", *flags(options))
    assert code == 0
    shown = rows(output)
    assert shown["Chunks stored"].startswith("at least 1 of 6 (listed for 0 s; --full")
    assert shown["Stored"].startswith("at least ")
    code, output, _ = run("info", url, "--path", "chunked", "--full", *flags(options))
    assert rows(output)["Chunks stored"] == "6 of 6 (100.0%)"


def test_info_without_listing(run: Run, server: tuple[str, int], url: str, options: dict[str, Any]) -> None:
    saved(url, options)
    with FaultProxy(server) as proxy:
        proxy.fault_of = lambda number, seen: "status 403" if "list-type=2" in seen.path else None
        limited = {**options, "endpoint": proxy.url}
        code, output, _ = run("info", url, "--path", "chunked", *flags(limited))
        assert code == 0
        assert "HTTP status 403" in rows(output)["Stored"]
        assert rows(output)["Shape"] == "(60, 40)"


def test_consolidate(run: Run, url: str, options: dict[str, Any]) -> None:
    saved(url, options)
    assert run("consolidate", url, *flags(options))[:2] == (0, "/: 3 nodes\n")
    group = gzarr.open_group(url, storage_options=options, use_consolidated=True)
    assert sorted(group.keys()) == ["below", "chunked"]
    code, output, errors = run("consolidate", url, "--path", "chunked", *flags(options))
    assert (code, output) == (1, "")
    assert "is an array" in errors


def test_verify(run: Run, url: str, options: dict[str, Any]) -> None:
    saved(url, options)
    code, output, errors = run("verify", url, *flags(options))
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == "10 stored chunks of 2 arrays: no problems"
    store: Any = gzarr.open_store(url, read_only=False, storage_options=options)
    store.set("chunked/c/1/0", b"damaged")
    store.erase("chunked/c/2/1")
    damaged = bytearray(store.get("below/sharded/c/0/1"))
    # In the index of the shard.
    damaged[-9] ^= 255
    store.set("below/sharded/c/0/1", bytes(damaged))
    code, output, _ = run("verify", url, "--missing", "error", "--json", *flags(options))
    assert code == 1
    found = json.loads(output)
    assert {(problem["kind"], problem["key"]) for problem in found["problems"]} == {
        ("chunk", "chunked/c/1/0"),
        ("missing", "chunked/c/2/1"),
        ("chunk", "below/sharded/c/0/1"),
    }


def test_copies(run: Run, url: str, options: dict[str, Any], tmp_path: Path) -> None:
    hierarchy(2, tmp_path / "a")
    both = flags(options)
    # Up, across, and down again.
    code, output, errors = run("copy", tmp_path / "a", f"{url}/1", "--read-back", *both)
    assert code == 0, errors
    assert output.startswith("5 arrays and 2 groups: ")
    assert " 0 parts written" in run("copy", tmp_path / "a", f"{url}/1", "--resume", *both)[1]
    recoded = ["--zarr-format", "3", "--chunks", "auto", "--codecs", "zstd"]
    apart = [*flags(options, "--source-option"), *flags(options, "--dest-option")]
    assert run("copy", f"{url}/1", f"{url}/2", *recoded, *apart)[0] == 0
    assert run("copy", f"{url}/2", tmp_path / "b", *flags(options, "--source-option"))[0] == 0
    check_same(tmp_path / "a", tmp_path / "b")
    code, output, errors = run("copy", f"{url}/1", f"{url}/2", *both)
    assert (code, output) == (2, "")
    assert "--resume" in errors or "overwrite" in errors
    # A part, to a node named by the URL.
    assert run("copy", f"{url}/2#g", f"{url}/3#x/y", *both)[0] == 0
    assert gzarr.open_group(f"{url}/3", path="x/y", storage_options=options).nmembers() > 0
    # The more special option counts.
    nowhere = f"http://127.0.0.1:{servers.free_port()}"
    code, _, errors = run(
        "copy",
        f"{url}/2",
        tmp_path / "c",
        *both,
        "--source-option",
        f"endpoint={nowhere}",
        "--source-option",
        "timeout=1",
    )
    assert code == 1
    assert "attempt" in errors
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("source", "dest"), [("", ""), ("", "/below"), ("/below", ""), ("#below", "/below"), ("", "#copy")]
)
def test_a_copy_over_its_source_is_refused(run: Run, url: str, options: dict[str, Any], source: str, dest: str) -> None:
    _, data = saved(url, options)
    code, _, errors = run("copy", url + source, url + dest, "--overwrite", *flags(options))
    assert code == 2
    assert "copy would overwrite" in errors
    found = gzarr.open_array(url, path="below/sharded", device="cpu", storage_options=options)
    np.testing.assert_array_equal(found[...], data)


def test_optimize(run: Run, url: str, options: dict[str, Any]) -> None:
    _, data = saved(url, options)
    code, output, errors = run("optimize", f"{url}#chunked", f"{url}-optimized", "--json", "--dry-run", *flags(options))
    assert (code, errors) == (0, "")
    (forecast,) = json.loads(output)
    assert forecast["now"]["stored_nbytes"] > 0
    code, output, errors = run("optimize", f"{url}#chunked", f"{url}-optimized", *flags(options))
    assert (code, errors) == (0, "")
    made = gzarr.open_array(f"{url}-optimized", device="cpu", storage_options=options)
    np.testing.assert_array_equal(made[...], data)


def test_bench(run: Run, url: str, options: dict[str, Any]) -> None:
    saved(url, options)
    code, output, errors = run("bench", url, "--rounds", "1", "--json", "--device", "cpu", *flags(options))
    assert code == 0, errors
    found = json.loads(output)["arrays"]
    assert [array["name"] for array in found] == ["/below/sharded", "/chunked"]
    for array in found:
        assert array["readers"]["gzarr"]["median_ms"] > 0
        assert "only local files" in array["remarks"]["zarr-python"]


def test_failures(run: Run, url: str, options: dict[str, Any], tmp_path: Path) -> None:
    nowhere = {**options, "endpoint": f"http://127.0.0.1:{servers.free_port()}", "timeout": "0.5"}
    for command in (["info"], ["tree"], ["verify"], ["consolidate"], ["bench"]):
        code, _, errors = run(*command, url, *flags(nowhere))
        assert code == 1, command
        assert errors.startswith("gzarr: error: ")
        assert errors.count("\n") == 1
        code, _, errors = run(*command, "s3://no-such-bucket/x", *flags(options))
        assert code == 1, command
        assert "no such bucket" in errors
        # Options are for URLs, and have a name.
        code, _, errors = run(*command, tmp_path, *flags(options))
        assert code == 2, command
        assert "is for URLs" in errors
        code, _, errors = run(*command, url, "--storage-option", servers.S3_SECRET)
        assert code == 2, command
        assert "NAME=VALUE" in errors
    for command in ("copy", "optimize"):
        code, _, errors = run(command, tmp_path, tmp_path / "b", "--dest-option", "region=x")
        assert code in (1, 2)
        code, _, errors = run(command, url, tmp_path / "b", *flags(nowhere))
        assert code == 1
        assert errors.count("\n") == 1
        assert not (tmp_path / "b").exists()


def test_secrets_as_environment_variables(url: str, options: dict[str, Any]) -> None:
    saved(url, options)
    variables = {
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_ENDPOINT_URL": options["endpoint"],
        "AWS_REGION": options["region"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "gzarr", "tree", url],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "chunked" in done.stdout


def test_options_as_text(run: Run) -> None:
    from argparse import ArgumentParser

    from gzarr.cli.locations import add_location

    parser = ArgumentParser()
    add_location(parser, "a node")
    given = {
        "timeout=2.5": 2.5,
        "skip_signature=true": True,
        "region=eu-west-1": "eu-west-1",
        "key=a=b": "a=b",
        "name=": "",
        'account_name="123"': "123",
        'client_options={"default_headers": {"a": "b"}}': {"default_headers": {"a": "b"}},
        f"deep={'[' * 100_000}": "[" * 100_000,
    }
    parsed = parser.parse_args(["x", *(word for text in given for word in ("--storage-option", text))])
    assert [value for _, value in parsed.storage_option] == list(given.values())
    assert options_of([("a", 1), ("b", 2)], [("a", 3)]) == {"a": 3, "b": 2}
    assert options_of([], []) is None
    for path, expected in {
        "s3://b/x": True,
        "S3://b": True,
        "zip::s3://b/x.zip": True,
        "file:///x": False,
        "/x": False,
        "a:b/c": False,
        r"C:\x": False,
    }.items():
        assert is_url(path) == expected, path


def test_functions_take_options(url: str, options: dict[str, Any], tmp_path: Path) -> None:
    data = np.arange(12).reshape(3, 4)
    gzarr.save(url, a=data, b=data + 1, storage_options=options)
    gzarr.save(url, data, path="c", storage_options=options)
    assert (gzarr.load(url, device="cpu", storage_options=options)["b"] == data + 1).all()
    assert list(gzarr.verify(url, storage_options=options)) == []
    assert gzarr.consolidate_metadata(url, storage_options=options).nmembers() == 3
    gzarr.copy(url, tmp_path / "x", source_options=options)
    gzarr.copy(tmp_path / "x", f"{url}-copy", dest_options=options)
    assert (gzarr.load(f"{url}-copy", path="c", device="cpu", storage_options=options) == data).all()
    node = gzarr.open_group(url, storage_options=options)
    with pytest.raises(ArgumentError, match="already a node"):
        gzarr.copy(node, tmp_path / "y", source_options=options)
    for work in (gzarr.load, gzarr.verify, gzarr.consolidate_metadata):
        with pytest.raises(ArgumentError, match="is for URLs"):
            work(tmp_path / "x", storage_options=options)
