"""Credentials, region and server of S3 from the files of AWS (``~/.aws/credentials``, ``~/.aws/config``), by botocore.

obstore itself reads environment variables and asks the servers of machines in the cloud, but no files. botocore knows
profiles, roles and single sign-on.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError
from ..installing import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How long credentials are used before the files are read again.
FRESH: Final = datetime.timedelta(minutes=5)
#: Options and variables that say how to sign requests, without the prefix ``aws_``.
_SIGNING: Final = (
    "access_key_id",
    "skip_signature",
    "web_identity_token_file",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
)


@dataclass(frozen=True)
class Profile:
    """Credentials of one profile. Only its name is kept, so that this can be sent to other processes."""

    name: str | None = None

    def __call__(self) -> dict[str, Any]:
        """Return the credentials, in the words of obstore."""
        found = _session(self.name).get_credentials()
        if found is None:
            raise ValueError("the profile has no credentials")
        keys = found.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.datetime.now(datetime.UTC) + FRESH,
        }

    def region(self) -> str | None:
        """Return the region of the profile, if it has one."""
        region: str | None = _session(self.name).get_config_variable("region")
        return region

    def endpoint(self) -> str | None:
        """Return the URL of the server of the profile, if it names one, as boto3 reads it.

        Raises
        ------
        ArgumentError
            If the files of AWS cannot be understood.
        """
        if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
            return None
        # Third-party code may raise anything about the files.
        try:
            session = _session(self.name)
            scoped = session.get_scoped_config()
            if str(scoped.get("ignore_configured_endpoint_urls", "")).lower() == "true":
                return None
            services = session.full_config.get("services", {}).get(scoped.get("services"), {})
            found = services.get("s3", {}).get("endpoint_url") or scoped.get("endpoint_url")
        except Exception as error:
            raise ArgumentError(f"the profile {self.name or 'default'!r} of AWS cannot be used: {error}") from None
        return str(found) if found else None


def find(options: Mapping[str, Any], name: str | None) -> Profile | None:
    """Return the profile that has the credentials for a store of S3, or None if they should come from elsewhere.

    Parameters
    ----------
    options
        Options of the store.
    name
        Name of the profile that the caller asks for; None for ``AWS_PROFILE``, or the default one.

    Raises
    ------
    ArgumentError
        If a profile is asked for and cannot be had.
    """
    named = name or os.environ.get("AWS_PROFILE")
    if name is None:
        given = {option.lower().removeprefix("aws_") for option, value in options.items() if value not in (None, False)}
        given |= {key.lower().removeprefix("aws_") for key in os.environ if key.startswith("AWS_")}
        if not given.isdisjoint(_SIGNING):
            return None
        if named is None and not any(_files()):
            return None
    try:
        import botocore.session  # noqa: F401
    except ImportError as error:
        if name is None:
            # The variables may not be needed: a machine in the cloud has credentials of its own.
            return None
        raise ArgumentError(f"the profile {name!r} is read by boto3 ({COMMANDS['boto3']}): {error}") from error
    # Third-party code may raise anything about the files.
    try:
        found = _session(named).get_credentials()
    except Exception as error:
        raise ArgumentError(f"the profile {named or 'default'!r} of AWS cannot be used: {error}") from None
    if found is None:
        if named is None:
            return None
        raise ArgumentError(f"the profile {named!r} of AWS has no credentials")
    return Profile(named)


def _session(name: str | None) -> Any:
    import botocore.session

    session = botocore.session.Session(profile=name)
    # The server of a machine in the cloud is asked by obstore.
    session.get_component("credential_provider").remove("iam-role")
    return session


def _files() -> list[bool]:
    """Return for each file of AWS whether it exists."""
    names = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    # One that this user may not look at is as good as none.
    return [
        os.path.isfile(os.path.expanduser(os.environ.get(variable) or usual))  # noqa: PTH111, PTH113
        for variable, usual in names.items()
    ]
