"""A server that speaks the XML dialect of Google Cloud Storage, as far as object stores use it.

Objects are kept in memory. There are buckets, conditional requests (generations and entity tags), byte ranges,
listings by pages and multipart uploads; every request needs the bearer token. Not Google's, so what it refuses is taken
from the reference: https://cloud.google.com/storage/docs/xml-api/reference-methods.

Run as ``python gcs_server.py PORT TOKEN PAGE_KEYS``.
"""

from __future__ import annotations

import email.utils
import hashlib
import itertools
import re
import sys
import threading
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

_PHRASES = {
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "BucketNotEmpty": 409,
    "PreconditionFailed": 412,
    "InvalidRange": 416,
    "AuthenticationRequired": 401,
    "InvalidArgument": 400,
    "MethodNotAllowed": 405,
}


class Refusal(Exception):
    """A code of an error, as the reference names it."""


@dataclass
class Object:
    data: bytes
    generation: int
    modified: float = field(default_factory=time.time)

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}-{self.generation}"'


class Buckets:
    """Objects by bucket and name, and uploads that are not complete."""

    def __init__(self, page_keys: int) -> None:
        self.page_keys = page_keys
        self.lock = threading.Lock()
        self.buckets: dict[str, dict[str, Object]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = itertools.count(1)

    def objects(self, bucket: str) -> dict[str, Object]:
        if bucket not in self.buckets:
            raise Refusal("NoSuchBucket")
        return self.buckets[bucket]

    def object(self, bucket: str, name: str) -> Object:
        found = self.objects(bucket).get(name)
        if found is None:
            raise Refusal("NoSuchKey")
        return found

    def put(self, bucket: str, name: str, data: bytes, expected: str | None) -> Object:
        objects = self.objects(bucket)
        if expected is not None and int(expected) != (objects[name].generation if name in objects else 0):
            raise Refusal("PreconditionFailed")
        objects[name] = Object(data, next(self._numbers))
        return objects[name]

    def begin_upload(self, bucket: str) -> str:
        self.objects(bucket)
        upload = f"upload-{next(self._numbers)}"
        self.uploads[upload] = {}
        return upload

    def parts(self, upload: str) -> dict[int, bytes]:
        if upload not in self.uploads:
            raise Refusal("NoSuchUpload")
        return self.uploads[upload]

    def page(self, bucket: str, query: dict[str, str]) -> str:
        """Return a page of a listing as XML."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(int(query.get("max-keys", 1000)), self.page_keys)
        found: dict[str, Object | None] = {}
        for name, entry in sorted(self.objects(bucket).items()):
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                found[prefix + rest.partition(delimiter)[0] + delimiter] = None
            else:
                found[name] = entry
        names = [name for name in sorted(found) if name > after]
        lines = ['<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>', f"<Name>{bucket}</Name>"]
        for name in names[:most]:
            entry = found[name]
            if entry is None:
                lines.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(entry.modified))
                lines.append(
                    f"<Contents><Key>{escape(name)}</Key><Generation>{entry.generation}</Generation><LastModified>"
                    f"{modified}</LastModified><ETag>{escape(entry.tag)}</ETag><Size>{len(entry.data)}</Size></Contents>"
                )
        if len(names) > most:
            lines.append(f"<NextContinuationToken>{escape(names[most - 1])}</NextContinuationToken>")
        lines.append(f"<IsTruncated>{str(len(names) > most).lower()}</IsTruncated></ListBucketResult>")
        return "".join(lines)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and bodies are small: do not wait for more.
    disable_nagle_algorithm = True
    buckets: Buckets
    token: str

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, name = parts.path[1:].partition("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            if self.headers.get("Authorization") != f"Bearer {self.token}":
                raise Refusal("AuthenticationRequired")
            with self.buckets.lock:
                answer = (self._of_object if name else self._of_bucket)(unquote(bucket), unquote(name), query, body)
        except Refusal as refusal:
            code = str(refusal)
            answer = _PHRASES[code], {}, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self._answer(*answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _of_bucket(self, bucket: str, _: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.command == "PUT":
            self.buckets.buckets.setdefault(bucket, {})
            return 200, {}, b""
        if self.command == "DELETE":
            if self.buckets.objects(bucket):
                raise Refusal("BucketNotEmpty")
            del self.buckets.buckets[bucket]
            return 204, {}, b""
        if self.command != "GET" or query.get("list-type") != "2":
            raise Refusal("InvalidArgument")
        return 200, {"Content-Type": "application/xml"}, self.buckets.page(bucket, query).encode()

    def _of_object(
        self, bucket: str, name: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if "uploads" in query or "uploadId" in query:
            return self._of_upload(bucket, name, query, body)
        if self.command == "PUT":
            put = self.buckets.put(bucket, name, body, self.headers.get("x-goog-if-generation-match"))
            return 200, _described(put), b""
        found = self.buckets.object(bucket, name)
        if self.command == "DELETE":
            del self.buckets.objects(bucket)[name]
            return 204, {}, b""
        if self.command not in ("GET", "HEAD"):
            raise Refusal("MethodNotAllowed")
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted not in ("*", found.tag):
            raise Refusal("PreconditionFailed")
        size, headers = len(found.data), _described(found)
        text = self.headers.get("Range")
        if text is None:
            return 200, headers, found.data
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
        if match is None or not any(match.groups()):
            raise Refusal("InvalidArgument")
        begin = int(match[1]) if match[1] else max(size - int(match[2]), 0)
        end = min(int(match[2]) + 1, size) if match[1] and match[2] else size
        if begin >= end:
            raise Refusal("InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{size}"}, found.data[begin:end]

    def _of_upload(
        self, bucket: str, name: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        buckets = self.buckets
        if "uploads" in query:
            text = f"<UploadId>{buckets.begin_upload(bucket)}</UploadId>"
            return 200, {}, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode()
        upload = query["uploadId"]
        parts = buckets.parts(upload)
        if self.command == "PUT":
            parts[int(query["partNumber"])] = body
            tag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            return 200, {"ETag": f'"{tag}"'}, b""
        del buckets.uploads[upload]
        if self.command == "DELETE":
            return 204, {}, b""
        numbers = [int(entry.text or "") for entry in ET.fromstring(body).iter("PartNumber")]
        if numbers != sorted(parts):
            raise Refusal("InvalidArgument")
        put = buckets.put(bucket, name, b"".join(parts[number] for number in numbers), None)
        text = f"<ETag>{escape(put.tag)}</ETag>"
        result = f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>"
        return 200, _described(put), result.encode()


def _described(found: Object) -> dict[str, str]:
    return {
        "ETag": found.tag,
        "x-goog-generation": str(found.generation),
        "Last-Modified": email.utils.formatdate(found.modified, usegmt=True),
        "Content-Type": "application/octet-stream",
    }


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    Handler.buckets = Buckets(int(sys.argv[3]))
    Handler.token = sys.argv[2]
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
