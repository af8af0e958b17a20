"""Pushing the metrics of a finished run to a Pushgateway: tried a few times, and never more than a warning."""

from __future__ import annotations

import functools
import urllib.error
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass

import tenacity
from prometheus_client import CollectorRegistry, push_to_gateway
from prometheus_client.exposition import basic_auth_handler, default_handler

from chaos.exits import UsageError

JOB = "aftershock"
TRIES = 3
TIMEOUT_S = 5.0
"""How long one try may take, seconds."""

RETRY = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(TRIES),
    wait=tenacity.wait_exponential(multiplier=0.5, max=2.0),
    retry=tenacity.retry_if_exception(lambda error: isinstance(error, OSError) and not _refused(error)),
    reraise=True,
)
"""At most three tries of 5 s, half a second and a second apart; what the gateway refuses is not tried again."""


def _refused(error: BaseException) -> bool:
    """Whether the gateway understood, and did not want it: another try would end the same way."""
    return isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500


@dataclass(frozen=True)
class Gateway:
    """A Pushgateway. ``url``: without user and password, as it is shown; these go into a header."""

    url: str
    user: str = ""
    password: str = ""

    @classmethod
    def parse(cls, text: str) -> Gateway:
        """Read ``http(s)://[USER:PASSWORD@]HOST[:PORT][/PREFIX]``.

        Raises UsageError when it is none, without repeating a password.
        """
        try:
            parts = urllib.parse.urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urllib.parse.urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            shown = text.rpartition("@")[2]
            raise UsageError(f"--push {shown}: write the URL of a Pushgateway, such as http://127.0.0.1:9091")
        place = f"[{host}]" if ":" in host else host
        url = f"{parts.scheme}://{place}{f':{port}' if port is not None else ''}{parts.path.rstrip('/')}"
        return cls(url, *map(urllib.parse.unquote, (parts.username or "", parts.password or "")))

    def push(self, registry: CollectorRegistry, **group: str) -> None:
        """Put these metrics in the place of all that the gateway holds for the job and this group.

        Raises OSError when it could not be reached, or did not want them, after all tries.
        """
        handler: Callable[..., Callable[[], None]] = default_handler
        if self.user:
            handler = functools.partial(basic_auth_handler, username=self.user, password=self.password)
        RETRY.copy()(push_to_gateway, self.url, JOB, registry, grouping_key=group, timeout=TIMEOUT_S, handler=handler)
