"""Telling Prometheus of runs: ``--serve-metrics`` while they go on, ``--push`` when they are over.

Whatever goes wrong here after the start is a warning: a run and its verdict never depend on who listens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from chaos.history import Event
    from metrics.prometheus import Board, Facts
    from metrics.prometheus.live import LiveRun
    from metrics.prometheus.pushing import Gateway
    from metrics.prometheus.serving import MetricsServer
    from metrics.summary import Summary
    from scenarios.request import Request
    from scenarios.suite import SuiteRecord

Command = TypeVar("Command", bound=Callable[..., Any])

KEY = "scenarios.telling"
ADDRESS, GATEWAY = f"{KEY}.address", f"{KEY}.gateway"


def options(command: Command) -> Command:
    """Give a command the options ``--serve-metrics`` and ``--push``; what they say is kept beside its arguments."""
    serve = click.option(
        "--serve-metrics",
        metavar="[HOST:]PORT",
        expose_value=False,
        callback=_address,
        help="Serve Prometheus metrics during the run, on loopback unless a host is named.",
    )
    push = click.option(
        "--push",
        metavar="URL",
        expose_value=False,
        callback=_gateway,
        help="Push the metrics of each finished run to this Pushgateway.",
    )
    return serve(push(command))


def _address(ctx: click.Context, option: click.Parameter, text: str | None) -> None:
    if text is not None:
        from metrics.prometheus.serving import Address

        ctx.meta[ADDRESS] = Address.parse(text)


def _gateway(ctx: click.Context, option: click.Parameter, text: str | None) -> None:
    if text is not None:
        from metrics.prometheus.pushing import Gateway

        ctx.meta[GATEWAY] = Gateway.parse(text)


def begin() -> None:
    """Open what the options ask for, until the command ends.

    Raises UsageError when nobody can listen at the address.
    """
    ctx = click.get_current_context()
    address, gateway = ctx.meta.get(ADDRESS), ctx.meta.get(GATEWAY)
    if address is None and gateway is None:
        return
    from metrics.prometheus import Board

    board, server = Board(), None
    if address is not None:
        from metrics.prometheus.serving import MetricsServer

        server = MetricsServer(address, board.registry)
        click.echo(f"metrics: {server.url}", err=True)
    ctx.meta[KEY] = ctx.with_resource(_until_the_end(Teller(board, server, gateway)))


@contextlib.contextmanager
def _until_the_end(teller: Teller) -> Iterator[Teller]:
    try:
        yield teller
    finally:
        teller.close()


def current() -> Teller:
    """Who tells of the runs of this command; one that tells nobody, where nothing was asked for."""
    ctx = click.get_current_context(silent=True)
    found: Teller | None = ctx.meta.get(KEY) if ctx else None
    return found or Teller()


@dataclass
class Teller:
    """Tells of runs by a board that a server shows, and by pushing to a gateway; neither needs to be there."""

    board: Board | None = None
    server: MetricsServer | None = None
    gateway: Gateway | None = None
    _failed: set[str] = field(default_factory=set, init=False)

    @contextlib.contextmanager
    def of(self, request: Request) -> Iterator[Telling]:
        """Tell of one run: give what this yields to the run as an observer, then ask it to tell of the verdict."""
        scenario = request.scenario.name
        telling = Telling(self)
        if self.board is not None:
            from metrics.prometheus.live import LiveRun

            telling.live = LiveRun(scenario, request.known_steps)
            self.board.begin(telling.live)
        try:
            yield telling
        finally:
            if self.board is not None:
                self.board.end(scenario)

    def finish(self, directory: Path, summary: Summary) -> None:
        """A run has been judged: show it, push it."""
        if self.board is not None:
            with self.warning(f"the metrics of {summary.scenario}"):
                from metrics.prometheus.facts import facts
                from metrics.verdict import Case

                told = facts(Case.load(directory), summary)
                self.board.finish(told)
                self._push(told, summary.scenario)

    def _push(self, told: Facts, scenario: str) -> None:
        if self.gateway is not None:
            from metrics.prometheus import registry

            self.gateway.push(registry(told), scenario=scenario)

    def finish_suite(self, record: SuiteRecord) -> None:
        """A suite is over: show it, push what only the suite knows."""
        if self.board is not None:
            with self.warning(f"the metrics of {record.suite}"):
                from metrics.prometheus import registry
                from scenarios import suite

                told = suite.facts(record)
                self.board.finish_suite(told)
                if self.gateway is not None:
                    self.gateway.push(registry(suite=told), suite=record.suite)

    @contextlib.contextmanager
    def warning(self, what: str) -> Iterator[None]:
        """Make a warning of whatever goes wrong inside, each text once."""
        try:
            yield
        except Exception as error:
            where = f" to {self.gateway.url}" if self.gateway and isinstance(error, OSError) else ""
            text = f"{what} could not be told{where}: {error}; the verdict stands"
            if text not in self._failed:
                self._failed.add(text)
                click.echo(f"aftershock: warning: {text}", err=True)

    def close(self) -> None:
        """Let somebody who scraped before read the end, then stop listening; Ctrl-C cuts the wait short."""
        if self.server is None:
            return
        with contextlib.suppress(KeyboardInterrupt):
            if patience := self.server.patience_s:
                click.echo(f"metrics: served until the next scrape, for {patience:.0f} s at most", err=True)
            self.server.wait_for_last_scrape()
        self.server.close()


@dataclass
class Telling:
    """Tells of one run: an observer of its events, if anybody is to see them."""

    teller: Teller
    live: LiveRun | None = None

    def __call__(self, event: Event) -> None:
        """Take in an event of the run; an error here ends the showing, not the run."""
        if self.live is not None:
            try:
                self.live(event)
            except Exception as error:
                self.live = None
                with self.teller.warning("the progress of the run"):
                    raise RuntimeError(f"{event.kind}: {error!r}") from error

    def judged(self, summary: Summary, directory: Path) -> tuple[Summary, Path]:
        """Tell of the verdict; gives back what it was given."""
        self.teller.finish(directory, summary)
        return summary, directory
