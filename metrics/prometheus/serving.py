"""A small HTTP server of metrics: on loopback by default, quiet, and patient enough for one last scrape."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from socket import AF_INET, AF_INET6
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from chaos.exits import UsageError

LOOPBACK = "127.0.0.1"
LAST_SCRAPE_S = 60.0
"""How long a server waits at most for the last scrape."""

SLACK = 1.5
"""How many usual pauses between two scrapes it waits at most."""


@dataclass(frozen=True)
class Address:
    """Where to listen. Port 0 stands for any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``PORT`` or ``HOST:PORT``; an IPv6 address stands in brackets.

        Raises UsageError when it is neither.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        named = bool(host) and (":" not in host or text.startswith("[")) if colon else True
        if not (named and port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise UsageError(f"--serve-metrics {text}: write a port, 0 to 65535, or HOST:PORT, such as 127.0.0.1:9464")
        return cls(host or LOOPBACK, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the run."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a request, none of which keeps the process alive."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of this machine, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hangs up is no trouble of the run."""


class _Answer:
    """A response that says when it has been sent."""

    def __init__(self, parts: Iterable[bytes], sent: Callable[[], None]) -> None:
        self._parts = parts
        self._sent = sent

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        """Called by the server when all is sent, or when it cannot be."""
        self._sent()


class MetricsServer:
    """Serves a registry in a thread of its own from the moment it is made.

    Raises UsageError when it cannot listen there.
    """

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        self._app = make_wsgi_app(registry)
        self._scrapes: list[float] = []
        self._scraped = threading.Condition()
        kind = type("_Server", (_Server,), {"address_family": AF_INET6 if ":" in address.host else AF_INET})
        try:
            self._server = kind((address.host, address.port), _Quiet)
        except (OSError, OverflowError) as error:
            raise UsageError(f"--serve-metrics {address}: {_trouble(error)}") from error
        self._server.set_app(self._answer)
        self.address = Address(address.host, self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True, name="metrics")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are read."""
        return f"http://{self.address}/metrics"

    @property
    def scrapes(self) -> int:
        """How many have been answered."""
        return len(self._scrapes)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> _Answer:
        begun = time.monotonic()
        return _Answer(self._app(environ, start_response), lambda: self._sent(begun))

    def _sent(self, begun: float) -> None:
        with self._scraped:
            self._scrapes.append(begun)
            self._scraped.notify_all()

    @property
    def patience_s(self) -> float:
        """How long a last scrape is worth waiting for: the usual pause and half of it again; 0 if nobody ever came."""
        known = sorted(self._scrapes)
        pauses = [after - before for before, after in itertools.pairwise(known)]
        return min(LAST_SCRAPE_S, SLACK * max(pauses[-3:], default=LAST_SCRAPE_S)) if known else 0.0

    def wait_for_last_scrape(self) -> bool:
        """Wait until a scrape has read what is told from now on, or patience is over; whether one came."""
        now = time.monotonic()
        with self._scraped:
            return self._scraped.wait_for(lambda: max(self._scrapes, default=0.0) >= now, self.patience_s)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _trouble(error: Exception) -> str:
    """What is wrong with an address, and the way out."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return "another process listens there; name another port, or 0 for any that is free"
    if number == errno.EACCES:
        return "this port needs root; name one above 1023, or 0 for any that is free"
    return f"nobody can listen there: {getattr(error, 'strerror', None) or error}; name an address of this machine"
