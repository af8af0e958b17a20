"""The catalogue itself: every program is whole, runnable, and changes what it says; without a cluster."""

from __future__ import annotations

import itertools
import re
import tempfile

import pytest
import ray.train
from ray import cloudpickle

from metrics.publish import ALWAYS
from scenarios.scenario import check_injections
from tests import mutants
from tests.mutants.__main__ import asked, parser
from tests.mutants.alone import patched
from tests.mutants.catalogue import MUTANTS, PROGRAMS, SAMPLE, THEMES, VARIANTS
from tests.mutants.catalogue.position import Anew
from tests.mutants.catalogue.resume import Early
from trainer import data


@pytest.fixture(autouse=True)
def resumed(monkeypatch, tmp_path):
    """As in a worker that goes on from a checkpoint."""
    monkeypatch.setattr(ray.train, "get_checkpoint", object)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_there_are_enough_and_each_has_a_name_of_its_own():
    assert len(MUTANTS) == sum(map(len, THEMES.values())) >= 40
    assert len(VARIANTS) >= 12
    assert len(PROGRAMS) == len(MUTANTS) + len(VARIANTS)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in PROGRAMS)
    assert all(THEMES.values())


@pytest.mark.parametrize("name", MUTANTS)
def test_the_checks_that_a_mutant_names_judge_its_run(name):
    mutant = MUTANTS[name]
    judging = {check for check, _ in (*ALWAYS, *mutant.trial.request().expects.checks)}
    assert {mutant.caught_by, *mutant.also} <= judging
    assert mutant.caught_by not in mutant.also


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_functions_that_are_there(name):
    with patched(MUTANTS[name].worker, MUTANTS[name].driver) as changed:
        assert changed


@pytest.mark.parametrize("name", [name for name in MUTANTS if "resume" in name])
def test_nothing_stays_changed(name):
    for _ in range(2):
        with patched(MUTANTS[name].worker) as changed:
            assert changed
    with patched() as changed:
        assert not changed


def test_patches_can_be_sent_to_workers():
    cloudpickle.register_pickle_by_value(mutants)
    try:
        for program in PROGRAMS.values():
            with patched(cloudpickle.loads(cloudpickle.dumps(program.worker))):
                pass
    finally:
        cloudpickle.unregister_pickle_by_value(mutants)


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_faults_can_fire(name):
    request = PROGRAMS[name].trial.request()
    check_injections(request.injections, request.shape)
    assert request.injections
    assert max((i.trigger.step or 0) for i in request.injections) < request.shape.steps


def test_two_clusters_serve_all_and_one_the_sample():
    assert len({program.trial.cluster for program in PROGRAMS.values()}) == 2
    tried = [MUTANTS[name] for name in SAMPLE]
    assert len(SAMPLE) == len({theme for theme, found in THEMES.items() for one in found if one in tried}) == 8
    assert {one.trial.cluster for one in tried} == {PROGRAMS["reference"].trial.cluster}
    assert len({one.trial.request().workload_key for one in tried}) == 1


def test_those_of_one_cluster_follow_each_other():
    clusters = [program.trial.cluster for program in asked(parser().parse_args([]))]
    assert sum(one != other for one, other in itertools.pairwise(clusters)) == 1


def test_programs_are_chosen_by_name_or_as_the_sample():
    chosen = asked(parser().parse_args(["--only", "shrinks", "reference"]))
    assert [program.name for program in chosen] == ["shrinks", "reference"]
    assert [program.name for program in asked(parser().parse_args(["--sample"]))] == list(SAMPLE)
    with pytest.raises(SystemExit):
        parser().parse_args(["--only", "no-such-program"])


@pytest.mark.parametrize(("kind", "first"), [(Early, 144), (Anew, 0)])
def test_an_epoch_with_a_mistake_begins_elsewhere_only_after_a_commit(kind, first, monkeypatch):
    monkeypatch.setattr(data, "in_micro_batches", lambda folder, size, ids: ids)
    epoch = kind.of(data.Epoch("folder", rows=480, batch_size=8, global_batch=48, run_path="run"))
    for committed, begin in ((0, 0), (192, first)):
        monkeypatch.setattr(data, "committed_samples", lambda run_path, committed=committed: committed)
        assert epoch() == range(begin, 480)
