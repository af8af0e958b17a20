"""The server of metrics: where it listens, what it answers, and how long it waits for a last scrape."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request

import pytest

from chaos.exits import UsageError
from metrics import prometheus
from metrics.prometheus.serving import LAST_SCRAPE_S, Address, MetricsServer
from tests.histories import healthy


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9464", "127.0.0.1", 9464),
        ("0", "127.0.0.1", 0),
        ("0.0.0.0:9464", "0.0.0.0", 9464),
        ("localhost:1", "localhost", 1),
        ("[::1]:65535", "::1", 65535),
    ],
)
def test_an_address_is_a_port_or_a_host_with_a_port(text, host, port):
    assert Address.parse(text) == Address(host, port)


def test_an_address_is_shown_as_it_is_written():
    assert [str(Address.parse(text)) for text in ("9464", "[::1]:1")] == ["127.0.0.1:9464", "[::1]:1"]


@pytest.mark.parametrize("text", ["", "x", "65536", "-1", ":9464", "host:", "::1:9464", "host:x", "1.5", "٣", "[]:1"])
def test_what_is_no_address_is_a_mistake_that_names_it(text):
    with pytest.raises(UsageError, match="write a port, 0 to 65535, or HOST:PORT") as error:
        Address.parse(text)
    assert f"--serve-metrics {text}: " in str(error.value)


@pytest.fixture
def server(told):
    made = MetricsServer(Address("127.0.0.1", 0), prometheus.registry(told(healthy())))
    yield made
    made.close()


def get(server, **headers):
    with urllib.request.urlopen(urllib.request.Request(server.url, headers=headers), timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_it_answers_in_prometheus_text_and_in_openmetrics_with_exemplars(server):
    kind, text = get(server)
    assert kind.startswith("text/plain; version=0.0.4")
    assert 'aftershock_exit_code{scenario="kill-worker"} 0.0' in text
    assert " # {run=" not in text
    kind, text = get(server, Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert ' # {run="0badcafe"} ' in text
    assert text.endswith("# EOF\n")


def test_a_port_in_use_is_a_mistake_with_a_way_out(server):
    with pytest.raises(UsageError, match="another process listens there; name another port, or 0"):
        MetricsServer(server.address, prometheus.registry())


def test_an_address_of_another_machine_is_a_mistake(told):
    with pytest.raises(UsageError, match=r"192\.0\.2\.1:0: nobody can listen there: .*; name an address of this"):
        MetricsServer(Address("192.0.2.1", 0), prometheus.registry())


def test_it_listens_on_the_address_and_nowhere_else(server):
    assert server.address.host == "127.0.0.1"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.2", server.address.port)) != 0


def test_nobody_is_waited_for_who_never_scraped(server):
    begin = time.monotonic()
    assert (server.patience_s, server.wait_for_last_scrape()) == (0.0, False)
    assert time.monotonic() - begin < 1


def test_who_scraped_once_is_waited_for_until_the_next_time(server):
    get(server)
    assert server.patience_s == LAST_SCRAPE_S
    later = threading.Timer(0.3, get, [server])
    later.start()
    assert server.wait_for_last_scrape()
    assert server.scrapes == 2
    later.join()


def test_who_scrapes_often_is_waited_for_a_little_longer_than_usual(server):
    for _ in range(3):
        get(server)
        time.sleep(0.05)
    begin = time.monotonic()
    assert 0 < server.patience_s < 30
    assert not server.wait_for_last_scrape()
    assert time.monotonic() - begin < 30


def test_a_scraper_that_hangs_up_is_no_trouble(server, capfd):
    with socket.create_connection(("127.0.0.1", server.address.port)) as probe:
        probe.sendall(b"GET /metrics HTTP/1.0\r\n")
    get(server)
    assert capfd.readouterr() == ("", "")


def test_when_it_is_closed_nobody_listens_any_more(told):
    made = MetricsServer(Address("127.0.0.1", 0), prometheus.registry())
    made.close()
    MetricsServer(made.address, prometheus.registry()).close()  # so the port is free again
