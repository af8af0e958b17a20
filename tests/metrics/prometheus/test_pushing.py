"""Pushing to a Pushgateway, which here is a small server that notes what it is sent and answers as it is told."""

from __future__ import annotations

import base64
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.error import HTTPError

import pytest
import tenacity

from chaos.exits import UsageError
from metrics import prometheus
from metrics.prometheus import pushing
from metrics.prometheus.pushing import TRIES, Gateway
from tests.histories import healthy


@pytest.fixture
def gateway(monkeypatch):
    """A server: ``codes`` are its next answers, then 200; ``heard``: method, path, headers and text of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.server.heard.append((self.command, self.path, dict(self.headers), text))
            self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    monkeypatch.setattr(pushing, "RETRY", pushing.RETRY.copy(wait=tenacity.wait_none()))
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.heard, server.codes = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def of(server, user=""):
    return Gateway.parse(f"http://{user}127.0.0.1:{server.server_port}")


def test_a_push_takes_the_place_of_the_group_of_job_and_scenario(gateway, told):
    of(gateway).push(prometheus.registry(told(healthy())), scenario="kill-worker")
    ((method, path, headers, text),) = gateway.heard
    assert (method, path) == ("PUT", "/metrics/job/aftershock/scenario/kill-worker")
    assert 'aftershock_exit_code{scenario="kill-worker"} 0.0' in text
    assert "Authorization" not in headers


def test_user_and_password_go_into_a_header_and_are_never_shown(gateway):
    made = of(gateway, "me:s%40crt@")
    made.push(prometheus.registry(), scenario="s")
    assert gateway.heard[0][2]["Authorization"] == "Basic " + base64.b64encode(b"me:s@crt").decode()
    assert "crt" not in made.url


def test_a_gateway_that_is_busy_is_asked_again(gateway):
    gateway.codes = [503, 500]
    of(gateway).push(prometheus.registry(), scenario="s")
    assert len(gateway.heard) == 3


def test_the_tries_are_bounded(gateway):
    gateway.codes = [503] * 9
    with pytest.raises(HTTPError, match="503"):
        of(gateway).push(prometheus.registry(), scenario="s")
    assert len(gateway.heard) == TRIES


def test_what_the_gateway_does_not_want_is_not_sent_again(gateway):
    gateway.codes = [400] * 9
    with pytest.raises(HTTPError, match="400"):
        of(gateway).push(prometheus.registry(), scenario="s")
    assert len(gateway.heard) == 1


def test_all_tries_together_take_less_than_half_a_minute():
    waits = [pushing.RETRY.wait(tenacity.RetryCallState(pushing.RETRY, None, (), {})) for _ in range(TRIES)]
    assert TRIES * pushing.TIMEOUT_S + sum(waits) < 30


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://h:9091", "http://h:9091"),
        ("https://h/prefix/", "https://h/prefix"),
        ("http://u:p@[::1]:9091", "http://[::1]:9091"),
    ],
)
def test_the_url_of_a_gateway_is_shown_without_user_and_password(text, url):
    assert Gateway.parse(text).url == url


@pytest.mark.parametrize(
    "text", ["", "h:9091", "ftp://h", "http://", "http://h:x", "http://h?a=b", "http://[::1", "://h"]
)
def test_what_is_no_url_of_a_gateway_is_a_mistake_that_names_it(text):
    with pytest.raises(UsageError, match="write the URL of a Pushgateway, such as") as error:
        Gateway.parse(text)
    assert f"--push {text}: " in str(error.value)


def test_a_mistake_never_repeats_a_password():
    with pytest.raises(UsageError) as error:
        Gateway.parse("http://me:secret@host:port")
    assert "secret" not in str(error.value)
    assert "host:port" in str(error.value)
