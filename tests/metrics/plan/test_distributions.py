"""Durations as distributions: what is written, what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from metrics.plan.distributions import Constant, Empirical, Exponential, Lognormal, parse
from metrics.plan.quantities import PlanError

ALL = [Constant(60), Exponential(60), Lognormal(60, 0.5), Empirical((30.0, 60.0, 90.0))]


@pytest.mark.parametrize("distribution", ALL, ids=str)
def test_what_is_drawn_has_the_mean_that_was_asked_for(distribution):
    drawn = np.broadcast_to(distribution.draw(np.random.default_rng(1), 40_000), 40_000)
    assert distribution.mean_s == 60
    assert np.mean(drawn) == pytest.approx(60, abs=4 * np.std(drawn) / 200)
    assert np.min(drawn) >= 0


def test_the_logarithm_of_a_lognormal_duration_deviates_as_asked():
    drawn = np.log(Lognormal(60, 0.5).draw(np.random.default_rng(1), 40_000))
    assert np.std(drawn) == pytest.approx(0.5, rel=0.02)


def test_what_was_measured_is_drawn_as_it_is():
    assert set(Empirical((30.0, 90.0)).draw(np.random.default_rng(1), 100)) == {30.0, 90.0}


@pytest.mark.parametrize("distribution", ALL[:3], ids=str)
def test_a_distribution_is_read_back_from_its_text(distribution):
    assert parse(str(distribution)) == distribution


def test_a_number_is_a_constant_duration():
    assert parse(" 12.5 ") == Constant(12.5)
    assert parse("constant(3)") == Constant(3)


@pytest.mark.parametrize("text", ["", "fast", "normal(3, 4)", "exponential()", "constant(1, 2)", "lognormal(3)", "3("])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(PlanError, match=r"is no duration: write 600, exponential\(600\)"):
        parse(text)


@pytest.mark.parametrize("text", ["-1", "exponential(-1)", "nan", "lognormal(0, 1)", "lognormal(1, 50)", "1e12"])
def test_a_duration_of_a_wrong_sign_or_size_is_named(text):
    with pytest.raises(PlanError, match="is outside"):
        parse(text)


def test_nothing_measured_is_no_distribution():
    with pytest.raises(PlanError, match="nothing was measured"):
        Empirical(())
