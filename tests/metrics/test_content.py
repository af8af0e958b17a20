"""Restored state and stored bytes against the digests taken at each save."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from metrics.checkpoints.content import check_restored, check_stored, saved_parts
from metrics.checkpoints.resharded import expected_parts
from metrics.verdict import Finding, Verdict
from tests.histories import Run, faulty, healthy, write_checkpoint
from tests.shards import ROWS, digests, held, save_values, shares, whole
from tests.stories import EARLY, EXPERIMENT, Hit, checkpoint_name, parts

WEIGHT = "model.weight@0,0"


def stored(run: Run, directory: Path) -> Finding:
    return check_stored(run.case(run.write(directory / "run")))


def folder(directory: Path, step: int) -> Path:
    return directory / "run" / "storage" / EXPERIMENT / checkpoint_name(step)


def test_saved_parts_gather_every_rank_by_attempt_and_step() -> None:
    found = saved_parts(healthy().case().attempts)
    assert found == {key: parts(0, key[1]) | parts(1, key[1]) for key in ((0, 4), (1, 8), (1, 12))}


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
def test_replicas_that_differ_at_the_save_equal_nothing(ranks: tuple[int, ...]) -> None:
    run = healthy()
    for rank in ranks:
        run = run.change("state", {"rank": rank, "attempt": 0}, parts={**parts(rank, 4), WEIGHT: f"{rank}" * 32})
    finding = check_restored(run.case())
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence == {"pieces": [WEIGHT]}


@pytest.mark.parametrize("kills", [((1, 6),), ((0, 4),), ((1, 6), (0, 10))])
def test_state_restored_as_saved_passes(kills: tuple[tuple[int, int], ...]) -> None:
    assert check_restored(healthy(kills=kills).case()).verdict is Verdict.PASS


@pytest.mark.parametrize("piece", [WEIGHT, "progress.step", "stamp.rank1@0", "never.saved@0"])
def test_one_piece_restored_otherwise_fails_by_name(piece: str) -> None:
    where = {"name": "restored", "rank": 1}
    finding = check_restored(healthy().change("state", where, parts={**parts(1, 4), piece: "0" * 32}).case())
    assert finding.verdict is Verdict.FAIL
    assert f"attempt 1, rank 1: 1 pieces differ, first {piece}" in finding.seen
    assert finding.evidence == {"pieces": [piece]}


def test_the_state_of_another_step_fails() -> None:
    run = healthy(kills=((1, 10),)).change("state", {"name": "restored", "rank": 0}, parts=parts(0, 4))
    assert check_restored(run.case()).verdict is Verdict.FAIL


def test_a_piece_that_no_rank_restored_fails() -> None:
    less = {key: digest for key, digest in parts(1, 4).items() if not key.startswith("stamp")}
    finding = check_restored(healthy().change("state", {"name": "restored", "rank": 1}, parts=less).case())
    assert finding.verdict is Verdict.FAIL
    assert "1 saved pieces were restored nowhere, first stamp.rank1@0" in finding.seen


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy().drop("state"), "0 of 2 ranks told their restored state"),
        (healthy().drop("state", name="saved"), "2 of 2 ranks"),
        (healthy().drop("state", name="restored", rank=1), "1 of 2 ranks told their restored state"),
        (healthy(kills=()), "nothing was restored"),
    ],
)
def test_without_told_state_nothing_is_known_of_the_restore(run: Run, words: str) -> None:
    finding = check_restored(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_where_no_checkpoint_came_before_the_fault_there_is_nothing_to_restore() -> None:
    assert check_restored(healthy(kills=((1, 2),)).case()).verdict is Verdict.NOT_APPLICABLE


def test_a_restart_without_checkpoint_does_not_excuse_the_one_with() -> None:
    run = healthy(kills=((1, 2), (0, 10)))
    assert check_restored(run.case()).verdict is Verdict.PASS
    damaged = run.change("state", {"name": "restored", "rank": 1}, parts={**parts(1, 8), WEIGHT: "0" * 32})
    assert check_restored(damaged.case()).verdict is Verdict.FAIL
    assert check_restored(run.drop("state", name="restored").case()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("phase", EARLY)
def test_a_group_that_was_hit_before_it_had_restored_is_judged_by_the_next(phase: str) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase=phase),))
    assert check_restored(run.case()).verdict is Verdict.PASS
    damaged = run.change(
        "state", {"name": "restored", "rank": 1, "attempt": 2}, parts={**parts(1, 4), WEIGHT: "0" * 32}
    )
    assert check_restored(damaged.case()).verdict is Verdict.FAIL
    assert check_restored(run.drop("state", name="restored", attempt=2).case()).verdict is Verdict.UNKNOWN


def test_a_rank_that_restored_otherwise_fails_though_its_attempt_was_hit_again() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="first-step"),))
    where = {"name": "restored", "rank": 1, "attempt": 1}
    assert (
        check_restored(run.change("state", where, parts={**parts(1, 4), WEIGHT: "0" * 32}).case()).verdict
        is Verdict.FAIL
    )


# Across a resize: shards of other sizes, compared with the tensors in the stored checkpoint

ELASTIC = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),), steps=16).asked(keep=9)
"""Attempt 1, of two ranks, restores what three saved at step 4; attempt 2, of three, what two saved at step 8."""


def restored(run: Run, directory: Path) -> Finding:
    return check_restored(run.case(run.write(directory / "run")))


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_what_a_group_of_another_size_must_hold_is_cut_from_the_checkpoint(tmp_path: Path, world: int) -> None:
    saved = {key: digest for rank in range(3) for key, digest in shares(rank, 3, 8).items()}
    told = {key: digest for rank in range(world) for key, digest in shares(rank, world, 8).items()}
    right = expected_parts(save_values(tmp_path / "checkpoint", whole(8), 3), saved, told)
    assert right == {key: digest for key, digest in told.items() if not key.startswith("stamp")}


def test_state_restored_by_other_numbers_of_ranks_passes(tmp_path: Path) -> None:
    finding = restored(ELASTIC, tmp_path)
    # Of two ranks each 2 shards, 3 slots, the scale and 3 values; of three each 2, 2, 1 and 3.
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "42 pieces equal")


def test_a_group_of_the_same_size_needs_no_checkpoint_to_compare_with(tmp_path: Path) -> None:
    run = faulty((Hit(2, 6),), worlds=(3,))
    assert check_restored(run.case(tmp_path)).verdict is Verdict.PASS


def bent(attempt: int, rank: int, world: int, step: int, **values: object) -> Run:
    """A rank restores other values; by name, with ``/`` for dots."""
    changed = {**whole(step), **{name.replace("/", "."): value for name, value in values.items()}}
    where = {"name": "restored", "attempt": attempt, "rank": rank}
    return ELASTIC.change("state", where, parts=digests(held(changed, rank, world)))


OTHER = whole(8)["model.weight"].flip(0)
DAMAGED = [
    (bent(2, 1, 3, 8, **{"model/weight": OTHER}), "attempt 2, rank 1: 1 pieces differ, first model.weight@3,0"),
    (bent(2, 2, 3, 8, **{"model/weight": OTHER}), "attempt 2, rank 2: 1 pieces differ, first model.weight@6,0"),
    (bent(1, 1, 2, 4, **{"model/weight": OTHER}), "attempt 1, rank 1: 1 pieces differ, first model.weight@4,0"),
    (bent(1, 0, 2, 4, **{"progress/step": 5}), "attempt 1, rank 0: 1 pieces differ, first progress.step"),
    (bent(1, 0, 2, 4, **{"scheduler/last": [0.1]}), "attempt 1, rank 0: 1 pieces differ, first scheduler.last"),
    (bent(1, 0, 2, 4, **{"model/bias": 0.0}), "attempt 1, rank 0: 1 pieces differ, first model.bias"),
    (
        bent(2, 0, 3, 8, **{"optimizer/state/weight/exp_avg": whole(8)["model.weight"]}),
        "attempt 2, rank 0: 1 pieces differ, first optimizer.state.weight.exp_avg@0,0",
    ),
]


@pytest.mark.parametrize(("run", "words"), DAMAGED)
def test_one_value_restored_otherwise_after_a_resize_fails_by_name(run: Run, words: str, tmp_path: Path) -> None:
    finding = restored(run, tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


def without(attempt: int, rank: int, piece: str) -> Run:
    where = {"name": "restored", "attempt": attempt, "rank": rank}
    (event,) = ELASTIC.select("state", **where)
    parts = {key: digest for key, digest in event.data["parts"].items() if not key.startswith(piece)}
    return ELASTIC.change("state", where, parts=parts)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (without(1, 1, "random.slot5"), "attempt 1: 1 saved pieces were restored nowhere, first random.slot5@0"),
        (without(1, 1, "model.weight"), "pieces differ, first model.weight@0,0"),
        (without(2, 2, "model.weight"), "pieces differ, first model.weight@3,0"),
    ],
)
def test_a_value_that_no_rank_restored_after_a_resize_fails(run: Run, words: str, tmp_path: Path) -> None:
    finding = restored(run, tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


def test_a_tensor_that_no_rank_restored_after_a_resize_fails(tmp_path: Path) -> None:
    run = without(1, 0, "model.weight")
    where = {"name": "restored", "attempt": 1, "rank": 1}
    less = {k: d for k, d in run.select("state", **where)[0].data["parts"].items() if not k.startswith("model.weight")}
    finding = restored(run.change("state", where, parts=less), tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert "3 saved pieces were restored nowhere, first model.weight@0,0" in finding.seen


def test_a_checkpoint_that_is_not_what_was_saved_is_no_measure(tmp_path: Path) -> None:
    directory = ELASTIC.write(tmp_path / "run")
    shutil.rmtree(folder(tmp_path, 4))
    save_values(folder(tmp_path, 4), {**whole(4), "model.weight": OTHER}, 3)
    run = ELASTIC
    for rank in (0, 1):
        parts = digests(held({**whole(4), "model.weight": OTHER}, rank, 2))
        run = run.change("state", {"name": "restored", "attempt": 1, "rank": rank}, parts=parts)
    finding = check_restored(run.case(directory))
    assert finding.verdict is Verdict.FAIL
    assert "first model.weight@0,0" in finding.seen


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (ELASTIC.asked(keep=2), "attempt 1 has another world size than the save, whose tensors it takes to compare"),
        (ELASTIC.drop("controller.start"), "where checkpoints went was not recorded"),
        (ELASTIC.drop("state", name="restored", attempt=1, rank=1), "attempt 1: 1 of 2 ranks told"),
        (ELASTIC.drop("state", name="saved", attempt=0), "attempt 1: 2 of 2 ranks told"),
    ],
)
def test_a_restore_after_a_resize_that_cannot_be_compared_is_unknown(run: Run, words: str, tmp_path: Path) -> None:
    finding = restored(run, tmp_path)
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_restore_that_fails_outweighs_one_that_cannot_be_compared(tmp_path: Path) -> None:
    directory = ELASTIC.write(tmp_path / "run")
    shutil.rmtree(folder(tmp_path, 4))
    assert check_restored(ELASTIC.case(directory)).verdict is Verdict.UNKNOWN
    assert check_restored(bent(2, 0, 3, 8, **{"progress/step": 9}).case(directory)).verdict is Verdict.FAIL


def test_a_group_that_was_resized_while_it_restored_is_judged_by_the_next(tmp_path: Path) -> None:
    run = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 0),)).asked(keep=9)
    partial = run.drop("state", name="restored", attempt=1, rank=1)
    assert restored(partial, tmp_path).verdict is Verdict.PASS
    where = {"name": "restored", "attempt": 2, "rank": 2}
    parts = digests(held({**whole(4), "model.weight": OTHER}, 2, 3))
    assert check_restored(partial.change("state", where, parts=parts).case(tmp_path / "run")).verdict is Verdict.FAIL


def test_the_rows_do_not_divide_among_the_ranks() -> None:
    assert all(ROWS % world for world in (2, 3))


def test_stored_checkpoints_of_every_world_size_equal_to_what_was_saved_pass(tmp_path: Path) -> None:
    finding = stored(ELASTIC, tmp_path)
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "4 checkpoints, 73 pieces equal")


def test_stored_checkpoints_equal_to_what_was_saved_pass(tmp_path: Path) -> None:
    finding = stored(healthy(), tmp_path)
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "2 checkpoints, 8 pieces equal")
    assert finding.where == f"storage/{EXPERIMENT}"


def test_a_directory_that_was_never_committed_is_an_orphan_not_a_failure(tmp_path: Path) -> None:
    write_checkpoint(folder(tmp_path, 10), 10)
    finding = stored(healthy(), tmp_path)
    assert finding.verdict is Verdict.PASS
    (size,) = finding.evidence["orphans"].values()
    assert finding.evidence == {"orphans": {checkpoint_name(10): size}}


def test_a_checkpoint_that_is_gone_fails(tmp_path: Path) -> None:
    run = healthy()
    directory = run.write(tmp_path / "run")
    shutil.rmtree(folder(tmp_path, 12))
    finding = check_stored(run.case(directory))
    assert finding.verdict is Verdict.FAIL
    assert finding.where == f"storage/{EXPERIMENT}/{checkpoint_name(12)}"


def test_one_more_piece_on_disk_than_was_saved_fails(tmp_path: Path) -> None:
    less = {key: digest for key, digest in parts(1, 8).items() if not key.startswith("stamp")}
    finding = stored(healthy().change("state", {"rank": 1, "step": 8}, parts=less), tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert "1 pieces differ from what was saved, first stamp.rank1@0" in finding.seen


def test_one_piece_fewer_on_disk_than_was_saved_fails(tmp_path: Path) -> None:
    more = {**parts(1, 8), "model.bias@0": "0" * 32}
    finding = stored(healthy().change("state", {"rank": 1, "step": 8}, parts=more), tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert f"{checkpoint_name(8)} lacks 1 pieces that were saved, first model.bias@0" in finding.seen


def test_the_content_of_another_step_fails(tmp_path: Path) -> None:
    run = healthy()
    directory = run.write(tmp_path / "run")
    shutil.rmtree(folder(tmp_path, 12))
    write_checkpoint(folder(tmp_path, 12), 8)
    finding = check_stored(run.case(directory))
    assert finding.verdict is Verdict.FAIL
    assert "4 pieces differ from what was saved" in finding.seen


def test_a_stamp_of_another_step_fails_although_every_digest_matches(tmp_path: Path) -> None:
    run = healthy()
    for rank in (0, 1):
        run = run.change("state", {"rank": rank, "step": 12}, parts=parts(rank, 8))
    directory = run.write(tmp_path / "run")
    shutil.rmtree(folder(tmp_path, 12))
    write_checkpoint(folder(tmp_path, 12), 8)
    finding = check_stored(run.case(directory))
    assert finding.verdict is Verdict.FAIL
    assert "carries the stamp of step 8, not 12" in finding.seen


def test_checkpoints_beyond_retention_are_not_asked_for(tmp_path: Path) -> None:
    finding = stored(healthy().asked(keep=1), tmp_path)
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "1 checkpoints, 4 pieces equal")


def test_checkpoints_beyond_retention_that_were_not_deleted_fail(tmp_path: Path) -> None:
    write_checkpoint(folder(tmp_path, 4), 4)
    finding = stored(healthy(), tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence == {"extra": [checkpoint_name(4)]}


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy().drop("checkpoint.commit"), "no checkpoint was committed"),
        (healthy().drop("state", attempt=1), "should hold was not told"),
        (healthy().drop("state", step=12), f"what {checkpoint_name(12)} should hold was not told"),
    ],
)
def test_without_told_digests_nothing_is_known_of_the_storage(run: Run, words: str, tmp_path: Path) -> None:
    finding = stored(run, tmp_path)
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_storage_that_nobody_told_of_is_unknown(tmp_path: Path) -> None:
    assert stored(healthy().drop("controller.start"), tmp_path).verdict is Verdict.UNKNOWN


def test_where_a_score_decides_those_that_are_there_are_the_ones_kept(tmp_path: Path) -> None:
    run = healthy().change("controller.start", score="loss")
    run.write(tmp_path / "run")
    write_checkpoint(folder(tmp_path, 4), 4)
    shutil.rmtree(folder(tmp_path, 8))
    finding = check_stored(run.case(tmp_path / "run"))
    assert finding.verdict is Verdict.PASS
    assert finding.seen.startswith("2 checkpoints")
