"""The command ``aftershock plan``: what it takes, what it prints, how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import msgspec
import pytest

from chaos.exits import ExitCode
from chaos.workload import INSTALLATION
from metrics.plan.presets import PRESETS
from scenarios.plan_request import PlanRecord
from scenarios.plan_view import duration
from tests.metrics.plan.runs import recovery, summary, write
from tests.scenarios.test_cli import is_one_line

LLAMA3 = ("plan", "--gpus", "16384", "--mtbf-preset", "llama3")


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def told(command):
    """The plan for these options, as a record."""

    def make(*options):
        result = command("plan", *options, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return msgspec.json.decode(result.stdout, type=PlanRecord)

    return make


def test_a_preset_is_told_with_its_source_and_the_worked_example_comes_out(command):
    result = command(*LLAMA3)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "The Llama 3 Herd of Models, 2024: 419 unexpected interruptions" in flat(result.stdout)
    assert re.search(r"Young +48\.1 min +0\.7250", result.stdout)
    assert re.search(r"exact optimum +44\.8 min +0\.7255", result.stdout)
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_named_in_the_help_and_prints_its_source(command, told, name):
    assert name in "".join(command("plan", "--help").stdout.split())
    assert told("--gpus", "4096", "--mtbf-preset", name).fleet.inputs["mtbf"].source == PRESETS[name].source


def test_without_a_source_rsc_1_is_assumed_and_said_so(told):
    found = told("--gpus", "16384").fleet.inputs["mtbf"]
    assert found.source.startswith("assumed: Kokolis et al.")
    assert found.seconds / 3600 == pytest.approx(1.803, abs=5e-4)


def test_rates_and_times_between_failures_can_be_given(told):
    assert told("--gpus", "16384", "--mtbf-h", "3.093").fleet.best.ettr == pytest.approx(0.7255, abs=1e-4)
    found = told("--gpus", "16384", "--failure-rate", "0.0065").fleet.inputs["mtbf"]
    assert found.seconds == pytest.approx(6490, abs=5)


def test_a_preset_is_of_machines_of_eight_gpus_whatever_ones_own_have(told):
    four, eight = (told(*LLAMA3[1:], "--gpus-per-machine", count).fleet for count in ("4", "8"))
    assert four.inputs["mtbf"] == eight.inputs["mtbf"]
    assert (four.machines, four.per_machine_day) == (4096, pytest.approx(eight.per_machine_day / 2))


def test_costs_are_given_and_may_vary(told):
    found = told(*LLAMA3[1:], "--checkpoint-s", "60", "--downtime-s", "lognormal(120, 0.5)").fleet.inputs
    assert (found["checkpoint"].seconds, found["checkpoint"].source) == (60, "given")
    assert (found["downtime"].seconds, found["downtime"].source) == (120, "given, the mean of lognormal(120, 0.5)")
    assert found["restore"].source == "assumed"


def test_a_model_is_sized_and_its_checkpoint_counts(command, told):
    options = ("--gpus", "32", "--model", "7b", "--nic-gbps", "400", "--nics", "8", "--mtbf-h", "8")
    found = told(*options)
    fsdp = {strategy.name: strategy for strategy in found.sizing.strategies}["fsdp"]
    assert (fsdp.nic_bytes, fsdp.nic_s, fsdp.bound) == (pytest.approx(42e9), pytest.approx(0.84), "compute-bound")
    assert found.fleet.inputs["checkpoint"].seconds == pytest.approx(56)
    assert found.period_steps == pytest.approx(510, abs=5)
    text = command("plan", *options).stdout
    assert re.search(r"ddp +112\.0 GB +does not fit", text)
    assert "its state does not fit into the memory of a GPU" in flat(text)


def test_one_slow_port_is_told_with_advice(command):
    options = ("--gpus", "32", "--model", "7b", "--nic-gbps", "100", "--nics", "1")
    text = flat(command("plan", *options).stdout)
    assert "network-bound, plan for hybrid sharding or larger micro-batches" in text


def test_a_run_is_measured_and_what_it_lacks_is_assumed(command, told, place):
    directory = str(write(place).relative_to(place))
    found = told(*LLAMA3[1:], "--from", directory).fleet.inputs
    assert (found["downtime"].seconds, found["restore"].seconds) == (pytest.approx(15.572), 0.595)
    assert found["downtime"].source == "measured: mean of 1 recovery of 2 workers"
    assert found["checkpoint"].source == "measured: mean of 4 saves by 2 workers"
    text = flat(command(*LLAMA3, "--from", directory, "--restore-s", "200").stdout)
    assert "detect 0.104, grace 0.000, teardown 0.187" in text
    assert re.search(r"restore 3\.33 min given", text)
    assert "A larger job restarts more slowly" in text


def test_what_a_run_lacks_is_assumed(told, place):
    lacking = write(place, summary(recovery(restore=0.0)), saves=0)
    found = told(*LLAMA3[1:], "--from", str(lacking)).fleet.inputs
    assert [found[name].source for name in ("checkpoint", "restore")] == ["assumed", "assumed"]
    assert found["downtime"].source.startswith("measured")


def test_a_simulation_agrees_with_the_formula_and_says_its_error(command, told):
    options = (*LLAMA3[1:], "--simulate", "--replicas", "200", "--spares", "60")
    found = told(*options).simulation
    assert found.outcome.ettr == pytest.approx(found.exact_ettr, abs=4 * found.outcome.error + 1e-4)
    assert (found.spares, found.least_gpus, found.outcome.replicas) == (60, 16384, 200)
    assert f"ETTR {found.outcome.ettr:.4f} ± {found.outcome.error:.4f}" in command("plan", *options).stdout


def test_a_simulated_fleet_has_all_that_was_asked_for(told):
    found = told(
        "--gpus", "4096", "--mtbf-preset", "rsc1", "--simulate", "--replicas", "50", "--spares", "0",
        "--least-gpus", "3800", "--kind", "hang:share=0.2,detect=lognormal(600, 0.5),machines=0",
        "--kind", "rack: share=0.1,machines=8",
        "--burst", "probability=0.1,within_s=300", "--infant", "times=2,days=5,wear_days=40", "--repair-h", "48",
    ).simulation  # fmt: skip
    assert found.setting == [
        "failures by the age of the fleet",
        "10% of the failures bring another within 300 s",
        "hang (20% of the failures, noticed in 600 s): none lost",
        "rack (10% of the failures, noticed in 0 s): takes 8 to repair for 48 h",
        "machine (70% of the failures, noticed in 0 s): takes 1 to repair for 48 h",
    ]
    assert (found.least_gpus, found.outcome.shares["shrunk"] > 0.001) == (3800, True)
    assert sum(found.outcome.shares.values()) == pytest.approx(1)


def test_a_trace_tells_the_rate_and_is_replayed(command, told, place):
    (place / "failures.csv").write_text("time_h\n" + "\n".join(f"{hour}" for hour in (*range(3, 120, 3), 700)))
    options = ("--gpus", "4096", "--trace", "failures.csv", "--simulate", "--replicas", "10", "--spares", "40")
    found = told(*options)
    assert found.fleet.inputs["mtbf"].seconds == pytest.approx(700 / 40 * 3600)
    assert found.simulation.outcome.horizon_s == 700 * 3600
    assert found.simulation.outcome.failures == 39  # the last one ends the record
    assert "line 41: 583.0 hours without a failure" in found.warnings[0]
    text = flat(command("plan", *options).stdout)
    assert "the 40 recorded failures, the same in each replica" in text
    assert "takes the recorded machines to repair for 24 h" in text


def test_a_small_job_is_warned(command):
    assert "small jobs do not follow the rate of machines" in flat(command("plan", "--gpus", "64").stdout)


MISTAKES = {
    "no size": ("", "Missing option '--gpus'"),
    "no GPUs": ("--gpus 0", "gpus=0 is outside 1 to"),
    "unknown preset": ("--gpus 8 --mtbf-preset llama4", "unknown preset 'llama4': known are llama3, rsc1"),
    "two sources": ("--gpus 8 --mtbf-h 3 --mtbf-preset rsc1", "--mtbf-preset and --mtbf-h each tell how often"),
    "negative time": ("--gpus 8 --mtbf-h -3", "mtbf_h=-3 must be above 0"),
    "rate of a thousand": ("--gpus 8 --failure-rate 6.5", "0.0065 for 6.5 in 1000"),
    "no progress": ("--gpus 131072 --mtbf-preset rsc1", "the job makes no progress: it fails every 811 s"),
    "no duration": ("--gpus 8 --restore-s soon", "--restore-s soon: 'soon' is no duration: write 600"),
    "negative cost": ("--gpus 8 --checkpoint-s -1", "--checkpoint-s -1: seconds=-1 is outside"),
    "costs nothing": ("--gpus 8 --checkpoint-s 0", "checkpoint_s=0 must be above 0"),
    "milliseconds": ("--gpus 8 --restore-s 9000000", "restore_s=9e+06 is outside 0 to 604800"),
    "certainty": ("--gpus 8 --survive 1", "survive=1 cannot be reached"),
    "per cent": ("--gpus 8 --survive 99", "write 0.99 for 99 per cent"),
    "no run": ("--gpus 8 --from nosuch", "No such file or directory; name the directory of a run"),
    "no trace": ("--gpus 8 --trace nosuch.csv", "nosuch.csv cannot be read"),
    "bad trace": ("--gpus 8 --trace bad.csv", "bad.csv, line 3: time_h 'x' is no number"),
    "no model": ("--gpus 8 --model big", "model 'big' is no number of parameters"),
    "bits": ("--gpus 8 --model 7b --nic-gbps 4e11", "Gbit/s of one card, such as 400"),
    "kind without share": ("--gpus 8 --simulate --kind hang", "--kind hang: '' is not understood; write KEY=VALUE"),
    "kind of unknown key": ("--gpus 8 --simulate --kind hang:size=1", "'size=1' is not understood"),
    "kind of no number": ("--gpus 8 --simulate --kind hang:share=x", "share=x is no number"),
    "too many kinds": ("--gpus 8 --simulate --kind a:share=0.6 --kind b:share=0.6", "the shares sum to 1.2"),
    "burst without end": ("--gpus 8 --simulate --burst probability=1", "so that bursts end"),
    "infant trace": ("--gpus 8 --simulate --trace good.csv --infant times=1", "a recorded fleet has its age already"),
    "no replicas": ("--gpus 8 --simulate --replicas 0", "replicas=0"),
    "negative seed": ("--gpus 8 --simulate --seed -1", "seed=-1"),
    "least above all": ("--gpus 64 --simulate --least-gpus 72", "least=9 is outside 1 to 8"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_64(command, place, mistake):
    (place / "bad.csv").write_text("time_h\n1\nx\n")
    (place / "good.csv").write_text("time_h\n100\n300\n")
    options, message = MISTAKES[mistake]
    is_one_line(command("plan", *options.split()), ExitCode.USAGE, message)


def test_help_shows_examples_and_imports_nothing_heavy():
    script = (
        "import sys; from scenarios.cli import cli; "
        "\ntry: cli.main(['plan', '--help'], prog_name='aftershock')"
        "\nexcept SystemExit as end: assert not end.code"
        "\nprint({'numpy', 'scipy', 'msgspec', 'rich', 'ray', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=INSTALLATION, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")
    assert "aftershock plan --gpus 16384 --mtbf-preset llama3" in done.stdout


def test_the_json_is_the_record_and_what_was_not_asked_for_is_null(command):
    found = json.loads(command(*LLAMA3, "--json").stdout)
    assert (found["schema"], found["sizing"], found["simulation"], found["measured"]) == (1, None, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.053, "0.053 s"), (56, "56 s"), (119, "119 s"), (120, "2 min"), (2688.8, "44.8 min"), (11134, "3.09 h"),
     (200_000, "2.31 days"), (86_400 * 1234, "1,234 days")],
)  # fmt: skip
def test_a_duration_is_told_in_the_unit_that_suits_it(seconds, text):
    assert duration(seconds) == text
