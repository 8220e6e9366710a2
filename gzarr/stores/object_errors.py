"""Failures of obstore, told apart: by class, by HTTP status, and by the code in the server's answer.

obstore gives the same class to quite different failures (an absent bucket is a ``FileNotFoundError``, like an absent
object), and its texts contain the URL with everything in it. So messages are made here, of parts known to be harmless.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import urlsplit


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
# obstore's own way to give the code of an object that was not erased, behind the server's words.
_ERASING_CODE: Final = re.compile(r"\(code: ([A-Za-z]{1,80})\)\s*\Z")
# What obstore says before the body of the answer, or of the cause, begins.
_REQUEST: Final = re.compile(r"Error performing [A-Z]+ \S+(?: in [^ ]+)?(?:,? after [^-]*?)? - ")
# What obstore says of a successful answer with an error in it, before the server's words. Elsewhere in its text, the
# same words are a key's or the server's.
_ERROR_WITHIN: Final = re.compile(
    rf"(?:Generic \w+ error: )?(?:Error (?:performing|getting) [A-Za-z ]{{1,60}}: )*(?:{_REQUEST.pattern})?"
    r"(Server returned error response|DeleteObjects request failed|Got invalid [A-Za-z ]{1,40} response)\b.*",
    re.DOTALL,
)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")

_NO_BUCKET_CODES: Final = frozenset({"nosuchbucket", "containernotfound", "nosuchcontainer", "bucketnotfound"})
_ABSENT_CODES: Final = frozenset(
    {"nosuchkey", "blobnotfound", "nosuchobject", "objectnotfound", "resourcenotfound", "pathnotfound"}
)
#: It says no more than the status, 404.
_VAGUE_CODE: Final = "notfound"
#: Codes of refusals.
_DENIED_CODES: Final = frozenset(
    {
        "accessdenied",
        "accountproblem",
        "allaccessdisabled",
        "authenticationfailed",
        "authorizationfailure",
        "authorizationpermissionmismatch",
        "expiredtoken",
        "invalidaccesskeyid",
        "invalidsecurity",
        "invalidtoken",
        "notsignedup",
        "requestexpired",
        "requesttimetooskewed",
        "signaturedoesnotmatch",
        "tokenrefreshrequired",
        "unauthorizedaccess",
    }
)
#: In the codes of failures that may pass: InternalError, ServiceUnavailable, SlowDown, ServerBusy, RequestTimeout,
#: ThrottlingException, OperationAborted, ConditionalRequestConflict, TooManyRequests, RequestLimitExceeded, ...
_PASSING_CODE: Final = re.compile(
    "internal|unavailable|slowdown|busy|timeout|timedout|thrott|aborted|requestconflict|toomanyrequests|limitexceeded",
    re.IGNORECASE,
)
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
# How rustls says that it does not trust a server, or that the two do not understand each other.
_CERTIFICATE: Final = re.compile(r"\bInvalidCertificate\(\s*([A-Za-z]+)(?:\(\s*OtherError\(\s*([A-Za-z]+))?")
_TLS: Final = re.compile(
    r"\b(?:InvalidMessage|PeerIncompatible|PeerMisbehaved|AlertReceived)\(\s*"
    r"(InvalidContentType|HandshakeFailure|ProtocolVersion|InsufficientSecurity|UnrecognisedName|CertificateRequired|"
    r"BadCertificate|UnknownCA|AccessDenied|NoApplicationProtocol|(?:Server|No|Tls)[A-Za-z0-9]+)"
)
_CERTIFICATES: Final = {
    "UnknownIssuer": "its issuer is not known here",
    "CaUsedAsEndEntity": "it is signed by itself",
    "Expired": "it has expired",
    "NotValidYet": "it is not valid yet",
    "NotValidForName": "it is that of another name",
    "Revoked": "it was revoked",
}
_ROOT: Final = "pass its issuer's certificate (PEM) as storage_options={'client_options': {'root_certificate': ...}}"
_UNTRUSTED: Final = (
    "where nobody else can be in between, pass storage_options={'client_options': {'allow_invalid_certificates': True}}"
)
_ASKED: Final = re.compile(r"\buri: Some\(\s*[A-Za-z]+://([^\s/?#,]+)")
_LOOKUP: Final = re.compile(r'"(?:failed to lookup address information: )?([A-Za-z ,.-]{1,80})"')
# EAI_AGAIN; and WSATRY_AGAIN of Windows.
_LATER: Final = re.compile("temporary failure|try again|temporary error|code: 11002", re.IGNORECASE)
_OF_SYSTEM: Final = re.compile(r'\bOs \{\s*code: \d+,\s*kind: [A-Za-z]+,\s*message: "([A-Za-z ,.\'-]{1,100})"')
#: What obstore and its libraries say of redirects, and what that means.
_REDIRECTS: Final = {
    "TooManyRedirects": "too many redirects: the server sends requests from one URL to the next, without an end",
    "BareRedirect": "the server redirects the request, and does not say where to",
    "redirect without LOCATION": "the server redirects the request, and does not say where to",
    "BadScheme": "a redirect, or an option, leads to a URL that does not begin with http:// or https://",
}
#: What obstore says of answers whose headers it cannot read. Plain requests can.
_UNREADABLE: Final = ("Invalid last modified", "non-ASCII", "non UTF-8", "Invalid content length")
_CANNOT_READ: Final = "obstore cannot read the headers of the answer"
#: What it says of a key.
_ILLEGAL_NAME: Final = "Encountered illegal character sequence"
_FINAL: Final = (
    "builder error",
    "invalid URL",
    "URL scheme is not allowed",
    "Name or service not known",
    "certificate",
    "not supported",
    "Missing",
    "Header missing",
    "CONTENT_RANGE header",
    "Content-Range header not present",
)
_LONGEST: Final = 200
#: Bytes of an answer in which a code is looked for.
_MOST_OF_BODY: Final = 16 << 10
NO_RANGES: Final = (
    "the server sends whole values only, and parts of values are needed (sharded arrays are read by byte ranges); use "
    "a server that supports range requests, or copy the data to a local directory"
)
# What is asked for credentials. In the paths of other URLs, the same words are a key's.
_CREDENTIAL_URL: Final = re.compile(
    r"://(?:(?:[^\s/]*@)?(?:169\.254\.169\.254|169\.254\.170\.23?|metadata\.google\.internal)(?![^\s/:?#])|"
    r"[^\s/]+/(?:latest/api/token|latest/meta-data|computeMetadata|metadata/identity/oauth2))"
)
_CREDENTIAL_HINTS: Final = ("CredentialProvider", "credential provider")


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
    # What follows is the debugging form of the same error. It says more of a connection that was not made.
    text, _, source = str(error).partition("\n\nDebug source:")
    text = _without_key(text)
    within = _ERROR_WITHIN.match(text)
    if within is not None:
        return _of_error_within(text, within, url)
    found = _STATUS.search(text)
    status = int(found[1]) if found is not None else None
    code = _code_in(text)
    reason = _reason(text, status, (found[2] or "").strip() if found is not None else "", code)
    if status is None and _is_of_credentials(text):
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
        return Failure(Kind.FINAL, status, NO_RANGES)
    if status is not None:
        return _of_other_status(status, reason)
    if _ILLEGAL_NAME in text:
        hint = "obstore takes no control characters, such as tabs, in keys and names of nodes: choose other names"
        return Failure(Kind.FINAL, None, f"{hint}, or use a local directory or fsspec")
    if name in ("GenericError", "OSError", "ConnectionError", "TimeoutError", "JoinError"):
        return _without_answer(text, source, reason, url)
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
    code = _code_in(text)
    reason = _reason("", status, phrase, code)
    return _of_known_status(status, code, reason, url) or _of_other_status(status, reason)


def _is_of_credentials(text: str) -> bool:
    """Return whether what failed was a request for credentials."""
    words = _URL.sub("<URL>", text)
    return _CREDENTIAL_URL.search(text) is not None or any(hint in words for hint in _CREDENTIAL_HINTS)


def _without_key(text: str) -> str:
    """Return what obstore says, from the request on if an object's key is before that: its words mean nothing."""
    request = None if text.startswith("Generic ") else _REQUEST.search(text)
    return text if request is None else text[request.start() :]


def _code_in(text: str) -> str:
    """Return the code in an answer, or in what obstore says of it; empty if there is none."""
    found = _CODE.search(text) or _JSON_CODE.search(text)
    return "" if found is None else found[1]


def _of_error_within(text: str, within: re.Match[str], url: str) -> Failure:
    """Return what an error in a successful answer means: its code alone says that, and nothing else of it is shown."""
    found = _ERASING_CODE.search(text) if within[1].startswith("Delete") else None
    code = _code_in(within[0]) if found is None else found[1]
    reason = f"{within[1]} ({code})" if code else within[1]
    known = code.lower()
    if known in _NO_BUCKET_CODES:
        return Failure(Kind.NO_BUCKET, None, reason)
    if known in _DENIED_CODES:
        return Failure(Kind.FINAL, None, f"{reason}; {_how_to_sign(url)}")
    if known == "preconditionfailed":
        return Failure(Kind.CONDITION, None, reason)
    passes = not code or _PASSING_CODE.search(code) is not None
    return Failure(Kind.TEMPORARY if passes else Kind.FINAL, None, reason)


def _of_known_status(status: int, code: str, reason: str, url: str, *, listing: bool = False) -> Failure | None:
    """Return what a status means by itself, or with the code in the answer; None if that is not all there is to it."""
    if code.lower() in _NO_BUCKET_CODES:
        return Failure(Kind.NO_BUCKET, status, reason)
    if status == 404:
        # Pages of web servers may have any code in them, such as that of a language.
        is_web, is_known = url.startswith("http"), code.lower() in _ABSENT_CODES
        if code and not is_known and code.lower() != _VAGUE_CODE and not is_web:
            # Something else is missing, or wrong: never take that for an absent chunk.
            return Failure(Kind.FINAL, 404, reason)
        certain = is_known or (is_web and not listing)
        return Failure(Kind.ABSENT if certain else Kind.ABSENT_OR_NO_BUCKET, status, reason)
    if status in (401, 403) or code.lower() in _DENIED_CODES:
        return Failure(Kind.FINAL, status, f"{reason}; {_how_to_sign(url)}")
    if status in (301, 307) and url.startswith("s3"):
        hint = "the bucket is in another region: pass storage_options={'region': ...}"
        return Failure(Kind.FINAL, status, f"{reason}; {hint}")
    kind = _KIND_OF_STATUS.get(status)
    return None if kind is None else Failure(kind, status, reason)


def _of_other_status(status: int, reason: str) -> Failure:
    return Failure(Kind.TEMPORARY if status in _TEMPORARY_STATUSES else Kind.FINAL, status, reason)


def is_unreadable(failure: Failure) -> bool:
    """Return whether there is an answer with headers that obstore cannot read."""
    return failure.status is None and failure.kind is Kind.FINAL and failure.reason.startswith(_CANNOT_READ)


def _without_answer(text: str, source: str, reason: str, url: str) -> Failure:
    """Return what a failure without an HTTP status means, given its text and its debugging form.

    Of the latter, only words of the libraries are shown: the rest of it has the URL in it, and what the server said.
    """
    asked = _ASKED.search(source)
    # Words in a URL mean nothing.
    said, source = _URL.sub("<URL>", text), _URL.sub("<URL>", source)
    found = _CERTIFICATE.search(source)
    if found is not None:
        what = found[2] or found[1]
        meaning = next((f": {meaning}" for word, meaning in _CERTIFICATES.items() if what.startswith(word)), "")
        how = f"{_ROOT}, or, {_UNTRUSTED}" if what == "UnknownIssuer" else _UNTRUSTED
        return Failure(Kind.FINAL, None, f"the server's certificate is not trusted{meaning} ({what}); {how}")
    found = _TLS.search(source)
    if found is not None:
        hint = "; is it a server of http://?" if found[1] == "InvalidContentType" else ""
        return Failure(Kind.FINAL, None, f"no encrypted connection can be made ({found[1]}){hint}")
    if '"dns error"' in source or "dns error" in said:
        host = "" if asked is None else asked[1].rpartition("@")[2]
        return _without_address(host, source.partition('"dns error"')[2] or said)
    for sign, what in _REDIRECTS.items():
        if sign in source or sign in said:
            if sign == "BareRedirect" and url.startswith("s3"):
                what = "the bucket is in another region: pass storage_options={'region': ...}"
            return Failure(Kind.FINAL, None, what)
    if any(sign in said for sign in _UNREADABLE):
        return Failure(Kind.FINAL, None, f"{_CANNOT_READ}: {reason.removeprefix('Generic HTTP error: ')}")
    if any(sign in said for sign in _FINAL):
        return Failure(Kind.FINAL, None, reason)
    if "Error performing" in text:
        found = _OF_SYSTEM.search(source)
        if found is not None:
            reason = f"no connection, or it was lost: {found[1]}"
        elif "TimedOut" in source:
            reason = "the server did not answer in time"
    return Failure(Kind.TEMPORARY, None, reason)


def _without_address(host: str, cause: str) -> Failure:
    """Return what it means that a name has no address, given the host that was asked first and what the system says."""
    is_temporary = _LATER.search(cause) is not None
    found = _LOOKUP.search(cause)
    cause = "" if found is None else f" ({found[1].rstrip('.')})"
    # obstore does not tell where redirects and proxies lead to. A network that is down answers nothing soon.
    if host and _has_address(host, numeric=is_temporary):
        name = f"a name to which a redirect of {host!r}, or a proxy, leads"
        hint = "look at the redirects of the server, and at proxy_url and variables such as HTTPS_PROXY"
    else:
        name = f"the name {host!r}" if host else "the name"
        hint = "look at its spelling, and at endpoint and account_name in storage_options"
    if is_temporary:
        return Failure(Kind.TEMPORARY, None, f"{name} cannot be resolved now{cause}; is there a network?")
    return Failure(Kind.FINAL, None, f"{name} cannot be resolved{cause}; {hint}")


def _has_address(host: str, *, numeric: bool) -> bool:
    """Return whether a host (``NAME:PORT``) has an address; ``numeric``: is one, which nobody has to be asked for."""
    try:
        name = urlsplit(f"//{host}").hostname
        return bool(name) and bool(socket.getaddrinfo(name, None, flags=socket.AI_NUMERICHOST if numeric else 0))
    # A name that cannot be encoded is a ValueError.
    except (OSError, ValueError):
        return False


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
    return words[:_LONGEST] or "no answer"
