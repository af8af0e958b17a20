"""Many nights: how often a scenario passed, whether it is flaky, how fast it recovered, and whether that changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metrics import regression
from metrics.report.trend import SHOWN, chart, write
from metrics.stored import survey
from metrics.trend import Health, Night, Trend, health_of, trend
from tests.nights import day, noise, store, store_all, summary


def seen(folder: Path, since: str = "") -> Trend:
    found = survey(folder, Night)
    return trend("runs", found.runs, found.told(), since)


def nights(seed: int, number: int, slow: int = 0, times: float = 1.0) -> list[float]:
    """Recoveries of about 20 s with the usual noise, the last ones so many times slower."""
    logs = noise(np.random.default_rng(seed), 1, number)[0]
    logs[number - slow :] += np.log(times)
    return (20.0 * np.exp(logs)).tolist()


@pytest.mark.parametrize(
    ("verdicts", "health", "place"),
    [("pppp", Health.PASSES, 0), ("ffff", Health.NEVER, 0), ("ppff", Health.BROKEN, 2), ("fppp", Health.MENDED, 1),
     ("ppfp", Health.FLAKY, 0), ("fpfp", Health.FLAKY, 0), ("p", Health.PASSES, 0), ("f", Health.NEVER, 0)],
)  # fmt: skip
def test_the_health_of_a_scenario_follows_from_its_changes(verdicts: str, health: Health, place: int) -> None:
    assert health_of([verdict == "p" for verdict in verdicts]) == (health, place)


def test_a_scenario_is_told_with_its_pass_rate_and_its_recoveries(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0, 11.0, None, 13.0], verdicts="ppfp")
    (one,) = seen(tmp_path).series
    assert (one.name, one.runs, one.passed, one.recoveries, one.median_s) == ("kill-worker", 4, 3, 3, 11.0)
    assert (one.health, one.failed, one.recent, one.health_since) == (Health.FLAKY, 1, 4, "")
    assert (one.change, one.watched, one.slower_since) == (None, False, "")
    assert [point.recovery_s for point in one.points] == [10.0, 11.0, None, 13.0]


def test_flaky_is_what_flickered_lately_not_what_did_so_long_ago(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0] * 40, verdicts="pfpfp")
    (one,) = seen(tmp_path).series
    assert (one.health, one.passed, one.failed, one.recent) == (Health.PASSES, 38, 0, 30)


def test_what_broke_is_told_with_the_night(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0] * 6, verdicts="ppppfu")
    (one,) = seen(tmp_path).series
    assert (one.health, one.health_since[:10]) == (Health.BROKEN, day(4))


def test_the_recent_change_is_that_of_the_latest_five_against_those_before(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0] * 5 + [12.0] * 5)
    (one,) = seen(tmp_path).series
    assert (one.recent_s, one.change) == (12.0, pytest.approx(0.2))


def test_another_shape_is_another_series(tmp_path: Path) -> None:
    store(tmp_path, 0, summary())
    store(tmp_path, 1, summary(workers=3))
    store(tmp_path, 2, summary("segfault"))
    names = [one.name for one in seen(tmp_path).series]
    assert names == ["kill-worker, 2 workers, 40 steps", "kill-worker, 3 workers, 40 steps", "segfault"]


def test_the_runs_are_in_the_order_of_their_times_wherever_they_lie(tmp_path: Path) -> None:
    for night, suite in ((2, "a"), (0, "b"), (1, "c")):
        store(tmp_path / suite, night, summary(seconds=10.0 + night))
    (one,) = seen(tmp_path).series
    assert [point.recovery_s for point in one.points] == [10.0, 11.0, 12.0]


def test_a_day_may_be_named_before_which_nothing_counts(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0] * 5)
    assert seen(tmp_path, since=day(3)).runs == 2
    assert seen(tmp_path, since="2027-01-01").series == []


def test_a_run_without_a_time_is_counted_and_left_out(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0] * 2)
    store(tmp_path, 5, summary()).rename(tmp_path / "renamed")
    found = seen(tmp_path)
    assert found.runs == 2
    assert found.left_out == ["left out 1, without a time in name or history"]


def test_a_slower_recovery_is_told_since_its_alarm(tmp_path: Path) -> None:
    store_all(tmp_path, nights(0, 60, slow=8, times=1.6))
    found = seen(tmp_path)
    (one,) = found.series
    assert day(52) < one.slower_since[:10] <= day(57)
    assert found.regressed == [f"kill-worker, since {one.slower_since[:10]}"]
    assert one.watched


def test_a_steady_one_is_no_regression(tmp_path: Path) -> None:
    store_all(tmp_path, nights(0, 60))
    assert seen(tmp_path).regressed == []


def test_too_few_runs_are_not_watched(tmp_path: Path) -> None:
    store_all(tmp_path, nights(0, regression.LEAST - 1, slow=4, times=5.0))
    found = seen(tmp_path)
    assert (found.watched, found.regressed) == (0, [])


def test_what_slows_all_scenarios_by_little_is_seen_together(tmp_path: Path) -> None:
    for place in range(8):
        store_all(tmp_path, nights(place, 50, slow=5, times=1.2), scenario=f"scenario-{place}")
    found = seen(tmp_path)
    assert found.together is not None
    assert found.together.change == pytest.approx(0.2, abs=0.06)
    assert day(45) <= found.together.slower_since[:10] <= day(48)
    assert found.watched == 9
    assert any(told.startswith("all together") for told in found.regressed)


def test_two_scenarios_are_no_together(tmp_path: Path) -> None:
    for place in range(2):
        store_all(tmp_path, nights(place, 30), scenario=f"scenario-{place}")
    assert seen(tmp_path).together is None


def test_a_chart_holds_every_run_within_its_frame(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0, None, 30.0], verdicts="pfp")
    drawn = chart(seen(tmp_path).series[0])
    assert [dot.point.recovery_s for dot in drawn.dots] == [10.0, None, 30.0]
    assert all(0 <= dot.x <= 680 and 0 <= dot.y <= 120 for dot in drawn.dots)
    assert drawn.dots[2].y < drawn.dots[0].y < drawn.dots[1].y
    assert drawn.line.count(",") == 2


def test_the_page_is_whole_in_itself_and_tells_each_run_in_words(tmp_path: Path) -> None:
    store_all(tmp_path / "runs", [10.0, 20.0, None], scenario="<kill>", verdicts="pfu")
    write(seen(tmp_path / "runs"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(odd not in page for odd in ("<kill>", "<script", "http://", "https://", "url("))
    assert 'role="img" aria-label="&lt;kill&gt;: recoveries of the latest 3 runs, from 0 to 22.0 seconds"' in page
    assert f"<title>{day(1)} 02:00: fail, 20.0 s</title>" in page
    assert (page.count('class="cross"'), page.count('class="dot"')) == (2, 1)


def test_a_chart_of_many_runs_shows_the_latest(tmp_path: Path) -> None:
    store_all(tmp_path, [10.0] * (SHOWN + 5))
    assert len(chart(seen(tmp_path).series[0]).dots) == SHOWN
