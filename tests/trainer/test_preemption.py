"""Notice of a preemption: asked for at the same steps everywhere, heeded at each, told in one line."""

from __future__ import annotations

import pytest
import ray.train
import torch.distributed as dist

from trainer.preemption import PreemptionWatch, announcement


def notice(deadline_ms, **ranks):
    return ray.train.PreemptionInfo(deadline_ms=deadline_ms, preempted_node_to_ranks=ranks)


@pytest.fixture
def answers(monkeypatch):
    """What Ray answers from now on, to a rank 0 unless told otherwise; how often it was asked."""
    monkeypatch.setattr(dist, "get_rank", lambda: 0)

    class Ray:
        answer, asked = None, 0

        def get_preemption_info(self):
            self.asked += 1
            return self.answer

    made = Ray()
    monkeypatch.setattr(ray.train, "get_preemption_info", made.get_preemption_info)
    return made


def test_it_asks_every_so_many_steps_only(answers):
    watch = PreemptionWatch(5)
    assert not any(watch.calls_for_checkpoint(step) for step in range(1, 21))
    assert answers.asked == 4


def test_it_never_asks_when_told_not_to(answers):
    answers.answer = notice(1000, n=[0])
    assert not any(PreemptionWatch(0).calls_for_checkpoint(step) for step in range(1, 21))
    assert answers.asked == 0


@pytest.mark.parametrize("deadline", [1_000_000, None])
def test_from_the_notice_on_each_look_calls_for_a_checkpoint_and_one_line_tells_it(answers, capsys, deadline):
    watch = PreemptionWatch(2)
    assert not watch.calls_for_checkpoint(2)
    answers.answer = notice(deadline, n=[1])
    assert [step for step in range(3, 11) if watch.calls_for_checkpoint(step)] == [4, 6, 8, 10]
    assert answers.asked == 5
    assert capsys.readouterr().out.count("\n") == 1


def test_another_deadline_is_told_too(answers, capsys):
    watch = PreemptionWatch(1)
    for step, deadline in enumerate((2_000_000, 1_000_000, 2_000_000), 1):
        answers.answer = notice(deadline, a=[1])
        assert watch.calls_for_checkpoint(step)
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize(("rank", "lines"), [(0, 1), (1, 0)])
def test_rank_zero_alone_prints_one_line(answers, monkeypatch, capsys, rank, lines):
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    answers.answer = notice(None, n=[1])
    assert PreemptionWatch(1).calls_for_checkpoint(1)
    assert capsys.readouterr().out.count("\n") == lines


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (notice(112_500, b=[3], a=[1]), "ranks 1, 3 will be lost in 12.5 s"),
        (notice(90_000, a=[0]), "ranks 0 will be lost in 0.0 s"),
        (notice(None, a=[2]), "ranks 2 will be lost soon"),
    ],
    ids=["two nodes", "past its deadline", "without a deadline"],
)
def test_the_line_names_the_step_the_ranks_and_the_seconds_left(told, line):
    assert (
        announcement(told, 25, 100.0) == f"step    25  preemption announced: {line}; saving at every look from now on"
    )
