"""``aftershock observability``: the files that come with the metrics, listed and written out."""

from __future__ import annotations

import json

from chaos.exits import ExitCode
from metrics.observability import FILES, read


def test_without_a_directory_the_files_are_listed_and_nothing_is_written(command, place):
    result = command("observability")
    assert result.exit_code == ExitCode.PASS
    assert [name for name in FILES if name not in result.stdout] == []
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert list(place.iterdir()) == []


def test_every_file_is_written_as_it_is_shipped_and_again(command, place):
    for _ in range(2):
        result = command("observability", "--out", "monitoring")
        assert result.exit_code == ExitCode.PASS
        assert "written below monitoring" in result.stdout
    assert {name: (place / "monitoring" / name).read_bytes() for name in FILES} == {name: read(name) for name in FILES}


def test_a_file_of_the_users_is_not_replaced_and_nothing_is_written(command, place):
    mine = place / "prometheus" / "prometheus.yml"
    mine.parent.mkdir()
    mine.write_text("global: {}\n")
    result = command("observability", "--out", ".")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert "prometheus/prometheus.yml is another file; name another directory, or --overwrite" in result.stderr
    assert [path.name for path in place.iterdir()] == ["prometheus"]
    assert command("observability", "--out", ".", "--overwrite").exit_code == ExitCode.PASS
    assert mine.read_bytes() == read("prometheus/prometheus.yml")


def test_a_directory_that_cannot_be_written_is_64(command, place):
    (place / "file").write_text("")
    result = command("observability", "--out", "file")
    assert result.exit_code == ExitCode.USAGE
    assert "--out file: " in result.stderr
    assert "name a directory that can be written" in result.stderr


def test_as_json_each_file_has_its_path_and_what_it_is(command):
    told = json.loads(command("observability", "--out", "m", "--json").stdout)
    assert told == [{"path": f"m/{name}", "title": title} for name, title in FILES.items()]
