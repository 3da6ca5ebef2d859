"""The page's data equals the records, the file is whole by itself and small, and mistakes are one line."""

import json
import math
import re
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_runs import METHODS, make_unfinished, set_status, write_run, write_sweep

from reports.figures.extract import read_scene
from reports.page import __main__ as command
from reports.page import collect, traces
from reports.page.rerun import rerun, written
from reports.page.write import document, embedded
from reports.tables.rendering import Column, Line, ReportTable, TableEntry, html

RECORDS = Path(__file__).parent / "records"
ROOT = Path(__file__).parents[2]


def unpack(column):
    """What the page's script does, in Python."""
    values = column.get("v")
    spell = [
        value
        for value, count in zip(*[iter(column.get("r", column.get("d", [0])[1:]))] * 2, strict=True)
        for _ in range(count)
    ]
    if "r" in column:
        values = spell
    if "d" in column:
        values = np.cumsum([column["d"][0], *spell]).tolist()
    return [None if value is None else value / 10 ** column["k"] for value in values]


def cells_of(data):
    return {
        (setting["noise"], cell["label"]): cell
        for setting in data["settings"]
        for cell in setting["cells"]
    }


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [1, 2, 3, 4, 9], [0.5, 0.5, 0.5, None, math.nan, 0.25], [3.14159, 2.0, 1.0]],
)
def test_packed_columns_are_what_they_were(values):
    expected = [None if value is None or math.isnan(value) else round(value, 3) for value in values]
    assert unpack(traces.pack(values, 3)) == expected


def test_packing_takes_the_shortest_form():
    assert traces.pack(range(10, 1010, 10), 0) == {"d": [10, 10, 99], "k": 0}
    assert traces.pack([0.25] * 100, 2) == {"r": [25, 100], "k": 2}
    assert traces.pack([0.1, 0.7, 0.3], 1) == {"v": [1, 7, 3], "k": 1}


def test_thinned_curves_keep_their_ends_and_share_places():
    assert traces.thinned(0, 100) == [] and traces.thinned(7, 100) == list(range(7))
    for length in (101, 399, 5000):
        kept = traces.thinned(length, 100)
        assert len(kept) <= 101 and kept[0] == 0 and kept[-1] == length - 1
    assert set(traces.thinned(3001, 100)) <= set(traces.thinned(301, 100)) | set(range(301, 3001))


def test_curve_of_a_record():
    frame = pd.read_csv(RECORDS / "good" / "fedcorr-iid-s1" / "curve.csv")
    found = traces.curve(frame, 400)
    assert unpack(found["accuracy"]) == frame["accuracy"].tolist()
    assert unpack(found["participations"]) == frame["participations"].tolist()
    assert found["stages"] == ["train", len(frame)]
    assert "megabytes" not in found and "scores" not in found


def test_scene_of_a_record():
    arrays = read_scene(RECORDS / "good" / "fedcorr-iid-s1")
    found = traces.scene(arrays)
    counts = arrays["clean_counts"]
    assert (found["clients"], found["classes"], found["largest"]) == (*counts.shape, counts.max())
    levels = np.array([traces.LEVELS.index(letter) for letter in found["counts"]]).reshape(
        counts.shape
    )
    assert ((levels == 0) == (counts == 0)).all() and (
        abs(levels / 63 - counts / counts.max()) <= 1 / 63
    ).all()
    assert found["sizes"] == counts.sum(axis=1).tolist()
    assert found["noisy"] == "".join("01"[int(level > 0)] for level in arrays["client_level"])


def test_confusion_of_few_and_of_many_classes():
    assert traces.confusion([[3, 1], [0, 4]]) == {"counts": [[3, 1], [0, 4]]}
    assert traces.confusion(np.eye(100, dtype=int).tolist()) == {"recall": [100.0] * 100}
    assert (
        traces.confusion(None)
        is traces.confusion([])
        is traces.confusion([[1, 2]])
        is traces.confusion("x")
        is None
    )


def test_numbers_equal_the_records(tmp_path, frozen_conf):
    folders = write_sweep(tmp_path / "runs")
    data = collect.page([str(tmp_path / "runs")]).data
    records = [json.loads((folder / "record.json").read_text()) for folder in folders]
    assert len(data["settings"]) == 2 and all(
        len(setting["cells"]) == 4 for setting in data["settings"]
    )
    for (noise, label), cell in cells_of(data).items():
        own = [
            r
            for r in records
            if r["config"]["method"]["name"] == label
            and f"ρ {r['config']['noise']['rho']:g}," in noise
        ]
        assert [run["id"] for run in cell["runs"]] == [record["run_id"] for record in own] and len(
            own
        ) == 2
        for name in ("best", "last10", "final"):
            values = [100 * record["summary"][name] for record in own]
            expected = {
                "mean": round(np.mean(values), 4),
                "std": round(np.std(values, ddof=1), 4),
                "n": 2,
            }
            assert cell[name] == pytest.approx(expected)
        assert (cell["participations"], cell["megabytes"], cell["seconds"]) == (500, 5, 10)
        assert (cell["clients_f1"] is None) == (label != "fedcorr")
    fedcorr = cells_of(data)["rho_tau (ρ 0.4, τ 0.5)", "fedcorr"]
    assert fedcorr["versus"]["mean"] == pytest.approx(0.5) and fedcorr["versus"]["n"] == 2
    curve = pd.read_csv(tmp_path / "runs" / fedcorr["runs"][1]["id"] / "curve.csv")
    assert unpack(fedcorr["runs"][1]["curve"]["accuracy"]) == curve["accuracy"].round(4).tolist()
    assert (
        unpack(fedcorr["runs"][1]["curve"]["scores"]["samples/f1"])
        == curve["samples/f1"].round(4).tolist()
    )
    assert len(data["scenes"]) == 4, "a scene that many runs share is there once"


def test_runs_that_differ_in_their_world_share_no_setting(frozen_conf):
    data = collect.page([str(RECORDS / "good")]).data
    for setting in data["settings"]:
        for name in (
            "dataset",
            "model",
            "partition",
            "noise",
            "budget",
            "federation",
            "evaluate",
            "scale",
        ):
            values = {
                json.dumps({k: v for k, v in cell["config"].items() if k.split(".")[0] == name})
                for cell in setting["cells"]
            }
            assert len(values) == 1
    assert len(
        {(s["scale"], s["partition"], s["noise"], s["budget"], s["also"]) for s in data["settings"]}
    ) == len(data["settings"])
    variants = {cell["label"] for setting in data["settings"] for cell in setting["cells"]}
    assert {"fedavg", "fedcorr"} <= variants and any(
        label.startswith("fedprox mu=") for label in variants
    )


def test_what_did_not_end_well_is_shown_and_not_counted(tmp_path, frozen_conf):
    _, second, third, fourth = write_sweep(
        tmp_path / "runs", rhos=[0.4], methods=["fedavg"], seeds=[1, 2, 3, 4]
    )
    set_status(second, "diverged", "round 7: the loss is not finite")
    set_status(third, "failed", f"OSError: {tmp_path}/data/x.bin: no space left")
    make_unfinished(fourth)
    found = collect.page([str(tmp_path / "runs")])
    (cell,) = cells_of(found.data).values()
    assert (
        cell["status"] == {"done": 1, "diverged": 1, "failed": 1, "running": 1}
        and cell["best"]["n"] == 1
    )
    runs = {run["seed"]: run for run in cell["runs"]}
    assert runs[2]["reason"] == "round 7: the loss is not finite"
    assert runs[3]["reason"] == "OSError: …/x.bin: no space left"
    assert unpack(runs[4]["curve"]["participations"]) == [5, 10, 15, 20, 25, 30]
    assert not [line for line in found.warnings if "unfinished" in line], (
        "a run that is shown is not left out"
    )
    assert str(tmp_path) not in json.dumps(found.data)


def test_bad_records_are_named_and_the_rest_is_built(tmp_path, frozen_conf, capsys):
    out = tmp_path / "page.html"
    assert command.main([f"runs={RECORDS / 'good'},{RECORDS / 'bad'}", f"out={out}"]) == 0
    said = capsys.readouterr()
    assert f"-> {out}" in said.out and "bad-half-written/record.json is damaged" in said.err
    text = out.read_text()
    assert (
        "bad-half-written/record.json is damaged" in text
        and str(RECORDS) not in text
        and "/root/" not in text
    )
    assert "fedcorr-iid-s1" in text


def test_no_run_at_all(tmp_path, capsys):
    assert command.main([f"runs={tmp_path}", f"out={tmp_path / 'page.html'}"]) == 0
    assert capsys.readouterr().err == f"no run below {tmp_path}: the page is empty\n"
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run=x"], "unknown key run: did you mean runs? available: runs, out, watch, every"),
        (["runs="], "invalid runs='': expected one or more directories, separated by commas"),
        (["out=page.txt"], "out=page.txt is not legal; legal: a file that ends in .html"),
        (["watch=yes"], "invalid watch=yes: available: true, false"),
        (["every=0"], "every=0 is not legal; legal: seconds, more than 0"),
        (["every=nan"], "every=nan is not legal; legal: seconds, more than 0"),
        (["runs=/nowhere", "out=/dev/null/x/page.html"], "/dev/null/x: Not a directory"),
    ],
)
def test_mistakes_are_one_line(arguments, line, capsys):
    assert command.main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {line}"


def test_the_file_needs_nothing_else(tmp_path, frozen_conf):
    write_sweep(tmp_path / "runs", rhos=[0.4])
    text = document(collect.page([str(tmp_path / "runs")]).data | {"written": "now", "every": 0})
    loads = r"""(?:src|href)\s*=\s*["']?[^"'#\s]|url\(|@import|\bimport\(|fetch\(|XMLHttpRequest|<link|<iframe|<img"""
    assert re.findall(loads, re.sub(r'<script id="data".*?</script>', "", text, flags=re.S)) == []
    assert "default-src 'none'" in text
    assert text.count("</script>") == 2 and "as \\u003c/script> FedCorr" in text
    assert json.loads(embedded({"a": "</script><!--\u2028"})) == {"a": "</script><!--\u2028"}


def test_two_hundred_cells_are_below_five_megabytes(tmp_path, frozen_conf):
    """At the papers' length: 500 tests, 100 clients, 100 classes, every score different at every test."""
    rhos = [0.0, 0.2, 0.4, 0.6, 0.8]
    folders = write_sweep(
        tmp_path / "runs", rhos, METHODS, [1, 2, 3, 4], tests=500, clients=100, classes=100
    )
    assert len(folders) == 200
    out = tmp_path / "page.html"
    assert command.main([f"runs={tmp_path / 'runs'}", f"out={out}"]) == 0
    assert 1e6 < out.stat().st_size < 5e6


def test_watching(tmp_path, frozen_conf, capsys, monkeypatch):
    """Written when something changed and only then; Ctrl-C ends it with one line and a page that stays as it is."""
    runs, out = tmp_path / "runs", tmp_path / "page.html"
    write_run(runs, 0.4, "fedavg", 1, 0.5)
    looks = []

    def sleep(seconds):
        looks.append(
            (
                seconds,
                json.loads(
                    re.search(
                        r'type="application/json">(.*?)</script>', out.read_text(), re.S
                    ).group(1)
                ),
            )
        )
        if len(looks) == 2:
            write_run(runs, 0.4, "fedavg", 2, 0.5)
        if len(looks) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert command.main([f"runs={runs}", f"out={out}", "watch=true", "every=3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in said[:-1]] == ["1 run", "2 runs", "2 runs"]
    assert said[-1] == "stopped; the page stays as it is"
    assert [(seconds, data["every"]) for seconds, data in looks] == [(3, 3)] * 4
    assert '"every":0' in out.read_text()


def test_a_reader_never_sees_half_a_page(tmp_path, frozen_conf):
    """The file is replaced whole while somebody reads it again and again."""
    runs, out = tmp_path / "runs", tmp_path / "page.html"
    write_run(runs, 0.4, "fedavg", 1, 0.5)
    command.main([f"runs={runs}", f"out={out}"])
    stop, endings = threading.Event(), set()

    def read():
        while not stop.is_set():
            endings.add(out.read_text().rstrip()[-7:])
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        command.main([f"runs={runs}", f"out={out}"])
    stop.set()
    reader.join()
    assert endings == {"</html>"} and not list(tmp_path.glob(".*"))


def test_the_command_composes_to_the_same_run():
    """Against the real configuration: what the page tells to type gives the run that it was told of."""
    from benchmarks.config.sweep import expand

    typed = [
        "method=fedcorr",
        "method.theta=0.25",
        "dataset=cifar10",
        "noise=symmetric",
        "noise.epsilon=0.7",
        "model=mlp",
    ]
    typed += [
        "model.hidden=[64,32]",
        "partition=dirichlet",
        "train.lr=0.00012345678",
        "seed=3",
        "scale=smoke",
    ]
    ((_, config),) = expand(typed)
    again = rerun(config.science(), config.scale)
    ((_, same),) = expand([*_words(again.command)[3:], "seed=3"])
    assert same.run_id == config.run_id
    keys = {"method.theta", "noise.epsilon", "model.name", "model.hidden", "train.lr"}
    assert set(again.differs) == keys
    assert len(_words(again.command)) == 3 + 6 + 4


def _words(command_line):
    import shlex

    return shlex.split(command_line)


def test_a_method_of_another_package_is_given_key_by_key(frozen_conf):
    config = {
        "method": {"name": "mine", "strength": 0.5},
        "dataset": {"name": "cifar10"},
        "model": {"name": "lenet5"},
    }
    config |= {"partition": {"name": "iid"}, "noise": {"name": "rho_tau", "classes": None}}
    again = rerun(config, "laptop")
    assert (
        again.command.endswith("scale=laptop method.strength=0.5 noise.classes=null")
        and again.differs == {}
    )


def test_values_as_they_are_typed():
    values = [None, True, 0.1, 3, "kl", (512, 512), "a b", "it's"]
    assert list(map(written, values)) == [
        "null",
        "true",
        "0.1",
        "3",
        "kl",
        "[512,512]",
        "'a b'",
        "'it\\'s'",
    ]


def test_paths_are_cut_to_their_last_part():
    told = "/home/me/x/y.npz: no; ~/a/b.csv, C:\\Users\\me\\c.csv, a / b, clients/f1, 3/4, </th></tr>, /tmp/runs/r-1/record.json"
    cut = "…/y.npz: no; …/b.csv, …/c.csv, a / b, clients/f1, 3/4, </th></tr>, r-1/record.json"
    assert collect._pathless({"clients/f1": [told]}, ["/tmp/runs", "s"]) == {"clients/f1": [cut]}


def test_tables_as_html():
    """Escaped, every row with its label over its lines, dashes marked."""
    columns = (Column("ρ<1", TableEntry("τ=0")), Column("ρ<1", TableEntry("τ=1", marks=("a",))))
    lines = (
        Line(
            "Federated",
            TableEntry("A & B"),
            "reproduced",
            (TableEntry("1.00", bold=True), TableEntry("–")),
        ),
        Line(
            "Federated",
            TableEntry(""),
            "published",
            (TableEntry("2.00"), TableEntry("3.00", marks=("a", "b"))),
        ),
    )
    text = html(ReportTable("t", "T", "a <caption>", columns, lines, (("", "all"), ("a", "x > y"))))
    assert (
        '<th scope="colgroup" colspan="2">ρ&lt;1</th>' in text
        and "<caption>a &lt;caption&gt;</caption>" in text
    )
    assert '<tr class="reproduced first"><th scope="rowgroup" rowspan="2">A &amp; B</th>' in text
    assert '<td><b>1.00</b></td><td class="none">–</td>' in text and "3.00<sup>a,b</sup>" in text
    assert "<li>all</li><li><sup>a</sup> x &gt; y</li>" in text


def test_the_vendored_library_is_what_its_notice_says():
    folder = ROOT / "reports" / "page" / "vendor"
    version = re.search(r"\(v([\d.]+)\)", (folder / "uPlot.iife.min.js").read_text()[:200]).group(1)
    assert f"| uPlot | {version} | MIT" in (folder / "README.md").read_text()
    assert "The MIT License" in (folder / "LICENSE").read_text()
