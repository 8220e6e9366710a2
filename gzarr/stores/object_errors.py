"""Failures of obstore, told apart: by class, by HTTP status, and by the code in the server's answer.

obstore gives the same class to quite different failures (an absent bucket is a ``FileNotFoundError``, like an absent
object), and its texts contain the URL with everything in it. So messages are made here, of parts known to be harmless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Kind(Enum):
    """Kinds of failures, by what to do about them."""

    #: The object does not exist, for certain.
    ABSENT = auto()
    #: The object does not exist, or the bucket does not: the server did not say.
    ABSENT_OR_NO_BUCKET = auto()
    #: The bucket, container or host does not exist.
    NO_BUCKET = auto()
    #: The object has another version than the one asked for, or it exists and should not.
    CONDITION = auto()
    #: The object still has the version that was sent with the request.
    UNCHANGED = auto()
    #: The value is too short for the range.
    RANGE = auto()
    #: The answer to a request for a listing is something else, such as a page for browsers.
    NO_LISTING = auto()
    #: No credentials were found.
    CREDENTIALS = auto()
    #: To try again later may help.
    TEMPORARY = auto()
    #: To try again will not help.
    FINAL = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of one request.

    Attributes
    ----------
    kind
        What to do about it.
    status
        HTTP status, or None if there was no answer.
    reason
        Description for users, without secrets.
    """

    kind: Kind
    status: int | None
    reason: str


_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Za-z' -]+))?")
_CODE: Final = re.compile(r"<Code>\s*([A-Za-z]{1,80})\s*</Code>", re.IGNORECASE)
_JSON_CODE: Final = re.compile(r'"code"\s*:\s*"([A-Za-z]{1,80})"')
# What obstore says before the body of the answer, or of the cause, begins.
_REQUEST: Final = re.compile(r"Error performing [A-Z]+ \S+(?: in [^ ]+)?(?:,? after [^-]*?)? - ")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")

_NO_BUCKET_CODES: Final = frozenset({"nosuchbucket", "containernotfound", "nosuchcontainer", "bucketnotfound"})
_ABSENT_CODES: Final = frozenset({"nosuchkey", "blobnotfound", "nosuchobject", "resourcenotfound", "pathnotfound"})
#: Answers after which a request is sent again. (409 and 423 say that writers of one key are in each other's
#: way.)
_TEMPORARY_STATUSES: Final = frozenset({408, 409, 421, 423, 425, 429, 500, 502, 503, 504, 507, 509, *range(520, 525)})
_KIND_OF_STATUS: Final = {304: Kind.UNCHANGED, 412: Kind.CONDITION, 416: Kind.RANGE}
#: What obstore says by the class of an exception, if not by a status.
_STATUS_OF_CLASS: Final = {
    "FileNotFoundError": 404,
    "NotFoundError": 404,
    "NotModifiedError": 304,
    "AlreadyExistsError": 412,
    "PreconditionError": 412,
    "PermissionDeniedError": 403,
    "UnauthenticatedError": 401,
    "PermissionError": 403,
}
#: Bytes of an answer in which a code is looked for.
_MOST_OF_BODY: Final = 16 << 10
_NO_RANGES: Final = (
    "the server sends whole values only, and parts of values are needed (sharded arrays are read by byte ranges); use "
    "a server that supports range requests, or copy the data to a local directory"
)
_CREDENTIAL_HINTS: Final = (
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "metadata.google.internal",
    "latest/api/token",
    "latest/meta-data",
    "computeMetadata",
    "metadata/identity/oauth2",
    "CredentialProvider",
    "credential provider",
)


def failure_of(error: BaseException, url: str, *, listing: bool = False) -> Failure:
    """Return what an exception of obstore means.

    Parameters
    ----------
    error
        The exception; its class is known by name only, because a forked child has other classes.
    url
        URL of the store, for the hint about credentials.
    listing
        Whether the request was for a list of objects, not for one object.
    """
    name = type(error).__name__
    text = str(error)
    # What follows is the debugging form of the same error.
    text = text.partition("\n\nDebug source:")[0]
    found = _STATUS.search(text)
    status = int(found[1]) if found is not None else None
    code_found = _CODE.search(text) or _JSON_CODE.search(text)
    code = code_found[1] if code_found is not None else ""
    reason = _reason(text, status, (found[2] or "").strip() if found is not None else "", code)
    if status is None and any(hint in text for hint in _CREDENTIAL_HINTS):
        return Failure(Kind.CREDENTIALS, None, f"no credentials were found; {_how_to_sign(url)}")
    if status == 405 and "performing MKCOL " in text:
        # Another writer has made the folder meanwhile.
        return Failure(Kind.TEMPORARY, status, reason)
    named = _STATUS_OF_CLASS.get(name)
    # To obstore, "405 Method Not Allowed" is an absent value, too.
    if named is not None and (named != 404 or status is None):
        status = named
    known = None if status is None else _of_known_status(status, code, reason, url, listing=listing)
    if known is not None:
        return known
    # An empty value has no ranges; Azurite sends one of no bytes.
    if '"bytes 0--1/0"' in text:
        return Failure(Kind.RANGE, status, reason)
    if "invalid path" in text and listing:
        hint = (
            "an object's name there is not a key (it has an empty, '.' or '..' part), and obstore lists nothing beside"
        )
        return Failure(Kind.FINAL, status, f"{reason}; {hint} it: erase it, or open nodes by their names")
    if "decoding PROPFIND response" in text:
        return Failure(Kind.NO_LISTING, status, reason)
    if "Range request not supported" in text or "non-partial response" in text:
        return Failure(Kind.FINAL, status, _NO_RANGES)
    if status is not None:
        return _of_other_status(status, reason)
    if name in ("GenericError", "OSError", "ConnectionError", "TimeoutError", "JoinError"):
        return Failure(Kind.FINAL if _is_final(text) else Kind.TEMPORARY, None, reason)
    return Failure(Kind.FINAL, None, reason)


def failure_of_answer(status: int, phrase: str, body: memoryview, url: str) -> Failure:
    """Return what an answer to a request for one object means that does not bring it.

    Parameters
    ----------
    status, phrase
        HTTP status, and what the server calls it.
    body
        The answer.
    url
        URL of the store.
    """
    text = bytes(body[:_MOST_OF_BODY]).decode("utf-8", "replace")
    found = _CODE.search(text) or _JSON_CODE.search(text)
    code = found[1] if found is not None else ""
    reason = _reason("", status, phrase, code)
    return _of_known_status(status, code, reason, url) or _of_other_status(status, reason)


def _of_known_status(status: int, code: str, reason: str, url: str, *, listing: bool = False) -> Failure | None:
    """Return what a status means by itself, or with the code in the answer; None if that is not all there is to it."""
    if code.lower() in _NO_BUCKET_CODES:
        return Failure(Kind.NO_BUCKET, status, reason)
    if status == 404:
        if code and code.lower() not in _ABSENT_CODES:
            # Something else is missing, or wrong: never take that for an absent chunk.
            return Failure(Kind.FINAL, 404, reason)
        certain = bool(code) or (url.startswith("http") and not listing)
        return Failure(Kind.ABSENT if certain else Kind.ABSENT_OR_NO_BUCKET, status, reason)
    if status in (401, 403):
        return Failure(Kind.FINAL, status, f"{reason}; {_how_to_sign(url)}")
    if status in (301, 307) and url.startswith("s3"):
        hint = "the bucket is in another region: pass storage_options={'region': ...}"
        return Failure(Kind.FINAL, status, f"{reason}; {hint}")
    kind = _KIND_OF_STATUS.get(status)
    return None if kind is None else Failure(kind, status, reason)


def _of_other_status(status: int, reason: str) -> Failure:
    return Failure(Kind.TEMPORARY if status in _TEMPORARY_STATUSES else Kind.FINAL, status, reason)


def _is_final(text: str) -> bool:
    """Return whether a failure without an HTTP status would come again."""
    return any(
        sign in text
        for sign in (
            "builder error",
            "invalid URL",
            "URL scheme is not allowed",
            "dns error",
            "Name or service not known",
            "certificate",
            "not supported",
            "Missing",
            "Header missing",
            "CONTENT_RANGE header",
            "Content-Range header not present",
        )
    )


def _how_to_sign(url: str) -> str:
    if url.startswith("s3"):
        names = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with boto3 installed, AWS_PROFILE and ~/.aws are read)"
    elif url.startswith("gs"):
        names = "GOOGLE_APPLICATION_CREDENTIALS"
    elif url.startswith(("az", "abfs")):
        names = "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY"
    else:
        return "pass credentials as storage_options={'client_options': {'default_headers': {...}}}"
    public = "storage_options={'skip_signature': True}"
    return f"set {names}, pass credentials in storage_options, or, for public data, {public}"


def _reason(text: str, status: int | None, phrase: str, code: str) -> str:
    """Return a description that cannot contain secrets: neither URLs nor bodies of answers."""
    if status is not None:
        return f"HTTP status {status}" + (f" {phrase}" if phrase else "") + (f" ({code})" if code else "")
    cause = _REQUEST.sub("", text).strip().splitlines() or [""]
    words = _URL.sub("<URL>", cause[0])
    return words[:200] or "no answer"
