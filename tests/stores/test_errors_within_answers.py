"""Errors within answers of S3 that have the status 200: their codes say what they mean, and nothing else is shown."""

from __future__ import annotations

import contextlib
import http.server
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.web_server import WebServer

import gzarr
from gzarr.stores.object_errors import Kind, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SAID = "SAIDSAIDSAID"
GENERIC = type("GenericError", (Exception,), {})


@contextlib.contextmanager
def erasing(answers: list[str]) -> Iterator[Any]:
    """Yield a store of S3 whose server gives each of some answers to requests that erase, and the last one again."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = f"<DeleteResult>{answers.pop(0) if len(answers) > 1 else answers[0]}</DeleteResult>".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    with WebServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        options = {
            "endpoint": f"http://127.0.0.1:{server.server_address[1]}",
            "access_key_id": "ACCESS",
            "secret_access_key": "SECRET",
            "region": "us-east-1",
            "timeout": 10,
        }
        try:
            yield gzarr.open_store("s3://bucket/x", read_only=False, storage_options=options)
        finally:
            server.shutdown()
            thread.join()


def refusal(code: str, key: str = "x/a") -> str:
    return f"<Error><Key>{key}</Key><Code>{code}</Code><Message>{SAID} (code: Fine)</Message></Error>"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("AccessDenied", "skip_signature"),
        ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", "AWS_ACCESS_KEY_ID"),
        ("NoSuchBucket", "there is no such bucket"),
        ("MethodNotAllowed", "DeleteObjects request failed"),
    ],
)
def test_refusals_to_erase_are_final(code: str, hint: str, caplog: pytest.LogCaptureFixture) -> None:
    with erasing([refusal(code)]) as store, caplog.at_level(logging.INFO, "gzarr"):
        begun = time.monotonic()
        with pytest.raises(gzarr.StoreError, match=rf"cannot erase 'a'.*\({code}\).*1 attempt in") as info:
            store.erase_values(["a", "b"])
        assert time.monotonic() - begun < 5
        assert hint in str(info.value)
        assert SAID not in str(info.value) + caplog.text


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout"])
def test_erasing_is_tried_again(code: str, caplog: pytest.LogCaptureFixture) -> None:
    with erasing([refusal(code), "<Deleted><Key>x/a</Key></Deleted>"]) as store, caplog.at_level(logging.INFO, "gzarr"):
        store.erase_values(["a", "b"])
        assert f"({code})" in caplog.text
        assert SAID not in caplog.text


@pytest.mark.parametrize("answer", [f"<{SAID}>x</{SAID}>", f"<Error><Key>x/a</Key><Message>{SAID}</Message></Error>"])
def test_what_is_no_answer_is_not_shown(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        erasing([answer, "<Deleted><Key>x/a</Key></Deleted>"]) as store,
        caplog.at_level(logging.INFO, "gzarr"),
    ):
        store.erase_values(["a", "b"])
        assert "Got invalid DeleteObjects response" in caplog.text
        assert SAID not in caplog.text


def failure(said: str, url: str = "s3://bucket/x") -> Any:
    return failure_of(GENERIC(f"Generic S3 error: {said}\n\nDebug source:\nGeneric {{ {SAID} }}"), url)


def test_other_answers_with_errors_within() -> None:
    asked = "Error performing POST http://h/b?delete in 1ms - Server returned error response: "
    for code, kind in (
        ("AccessDenied", Kind.FINAL),
        ("InternalError", Kind.TEMPORARY),
        ("PreconditionFailed", Kind.CONDITION),
        ("ConditionalRequestConflict", Kind.TEMPORARY),
        ("NoSuchBucket", Kind.NO_BUCKET),
        ("NoSuchUpload", Kind.FINAL),
    ):
        found = failure(f"{asked}<Error><Code>{code}</Code><Message>{SAID} certificate</Message></Error>")
        assert found.kind is kind
        assert found.reason.startswith(f"Server returned error response ({code})")
        assert SAID not in found.reason
    # Words of the server that say nothing.
    found = failure(f"{asked}<Error><Message>{SAID} certificate status code: 404</Message></Error>")
    assert (found.kind, found.reason) == (Kind.TEMPORARY, "Server returned error response")


def test_refusals_by_another_status_say_how_to_sign() -> None:
    text = f"Server returned non-2xx status code: 400 Bad Request: <Error><Code>ExpiredToken</Code>{SAID}</Error>"
    found = failure(f"Error performing GET http://h/b in 1ms - {text}")
    assert (found.kind, found.status) == (Kind.FINAL, 400)
    assert found.reason.startswith("HTTP status 400 Bad Request (ExpiredToken); set AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize("word", ["Server returned error response", "Got invalid list response", "status code: 503"])
@pytest.mark.parametrize("code", ["", "<Error><Code>NoSuchKey</Code></Error>"])
def test_words_in_a_key_mean_nothing(word: str, code: str) -> None:
    said = "Error performing GET http://h/b/k in 1ms - Server returned non-2xx status code: 404 Not Found: "
    error = type("NotFoundError", (Exception,), {})(f"Object at location x/{word} y not found: {said}{code}")
    found = failure_of(error, "s3://b/x")
    assert (found.kind, found.status) == (Kind.ABSENT if code else Kind.ABSENT_OR_NO_BUCKET, 404)


def test_words_of_a_server_in_another_answer_mean_nothing() -> None:
    text = f"Server returned non-2xx status code: 503 Service Unavailable: Server returned error response {SAID}"
    found = failure(f"Error performing GET http://h/b in 1ms, after 2 retries - {text}")
    assert (found.kind, found.status) == (Kind.TEMPORARY, 503)


@pytest.mark.parametrize("before", ["", "Error performing complete multipart request: "])
def test_errors_within_answers_in_other_words(before: str) -> None:
    asked = "Error performing POST http://h/b?a=b in 1ms, after 2 retries, max_retries: 2, retry_timeout: 1s - "
    found = failure(f"{before}{asked}Server returned error response: <Error><Code>AccessDenied</Code></Error>")
    assert (found.kind, found.status) == (Kind.FINAL, None)
