"""The page on comparing checkpoints, compared with the code that it describes."""

from __future__ import annotations

from metrics.checkpoints import folders, forms, pickled, trees, zips
from tests.docs.pages import bare, page, quoted, section, tables

TEXT = page("comparing-checkpoints.md")


def test_the_names_that_are_passed_over_are_those_of_the_code():
    times, places, paths, files = section(TEXT, "What is passed over").split("\n- ")[1:]
    told = quoted(times.split(". The words")[0].replace("\n", " "))
    assert told.pop() == "time_total_s"
    assert all(trees.TIMES.search(name) for name in (*told, "time_total_s"))
    assert set(trees.TIMES.pattern.split("(")[2].split(")")[0].split("|")) == {n for n in told if "_per_" not in n}
    assert set(quoted(places)) == trees.PLACES
    assert set(quoted(paths)) == trees.PATHS
    assert quoted(files.split("\n\n")[0]) == [folders.LOGS]


def test_the_bounds_are_those_of_the_code():
    text = section(TEXT, "Bounds").replace("\n", " ")
    bounds = [
        f"over {pickled.LARGEST >> 20} MiB or {pickled.MOST:,} instructions",
        f"over {forms.LARGEST_TEXT >> 20} MiB",
        f"over {trees.DEEPEST} deep",
        f"over {trees.MOST_VALUES:,} of them",
        f"over {zips.LARGEST_UNPACKED >> 30} GiB",
        f"over {zips.TABLE >> 20} MiB",
    ]
    assert [bound for bound in bounds if bound not in text] == []
    assert f"{trees.MOST_GAPS:,}" in TEXT


def test_every_form_is_told():
    told = {bare(row["form"]) for row in tables(TEXT, "form")}
    assert told == {"DCP", "torch.save", "pickle", "safetensors", "numpy", "JSON", "zip", "anything else"}
