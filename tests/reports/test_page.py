"""HTML report: the command, and a file that is self-contained, small and replaced atomically."""

import json
import re
import threading
import time
from pathlib import Path

import pytest
from fake_runs import METHODS, write_run, write_sweep

from reports.page import __main__ as command
from reports.page.__main__ import render_html
from reports.page.collect import build_page_data
from reports.tables.rendering import Column, Line, ReportTable, TableEntry, html

RECORDS = Path(__file__).parent / "records"
VENDOR = Path(__file__).parents[2] / "reports" / "page" / "vendor"


def embedded_data(text):
    (data,) = re.findall(r'type="application/json">(.*?)</script>', text, re.S)
    return json.loads(data)


def test_damaged_records_are_reported(tmp_path, frozen_conf, capsys):
    out = tmp_path / "page.html"
    assert command.main([f"runs={RECORDS / 'good'},{RECORDS / 'bad'}", f"out={out}"]) == 0
    printed, text = capsys.readouterr(), out.read_text()
    assert f"-> {out}" in printed.out
    for warnings in (printed.err, text):
        assert "bad-half-written/record.json: not a valid JSON" in warnings
    assert str(RECORDS) not in text and "/root/" not in text
    assert "fedcorr-iid-s1" in text


def test_page_without_runs(tmp_path, capsys):
    assert command.main([f"runs={tmp_path}", f"out={tmp_path / 'page.html'}"]) == 0
    assert capsys.readouterr().err == f"no run below {tmp_path}: the page is empty\n"
    assert embedded_data((tmp_path / "page.html").read_text())["settings"] == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["run=x"],
            "unknown key run: did you mean runs? available: runs, out, accuracy, watch, every",
        ),
        (["runs="], "invalid runs='': expected one or more directories, separated by commas"),
        (["out=page.txt"], "invalid out=page.txt: expected a file name that ends in .html"),
        (["accuracy=mean"], "invalid accuracy=mean: available: selected, last10, best, final"),
        (["watch=yes"], "invalid watch=yes: available: true, false"),
        (["every=0"], "invalid every=0: expected a number of seconds above 0"),
        (["every=nan"], "invalid every=nan: expected a number of seconds above 0"),
        (["runs=/nowhere", "out=/dev/null/x/page.html"], "cannot use /dev/null/x: Not a directory"),
    ],
)
def test_user_errors_are_one_line(arguments, line, capsys):
    assert command.main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {line}"


def test_file_is_self_contained(tmp_path, frozen_conf):
    write_sweep(tmp_path / "runs", rhos=[0.4])
    data = build_page_data([str(tmp_path / "runs")])[0] | {"written": "now", "every": 0}
    text = render_html(data)
    loads = (
        r"""(?:src|href)\s*=\s*["']?[^"'#\s]|url\(|@import|\bimport\(|fetch\(|XMLHttpRequest"""
        r"|<link|<iframe|<img"
    )
    assert re.findall(loads, re.sub(r'<script id="data".*?</script>', "", text, flags=re.S)) == []
    assert "default-src 'none'" in text


def test_data_cannot_end_the_script_element():
    data = {"text": "</script><!--\u2028&'", "settings": []}
    text = render_html(data)
    assert text.count("</script>") == 2 and embedded_data(text) == data


@pytest.mark.no_cover
def test_two_hundred_runs_are_below_five_megabytes(tmp_path, frozen_conf):
    """At the papers' length: 500 evaluations, 100 clients, 100 classes, incompressible scores."""
    size = {"tests": 500, "clients": 100, "classes": 100}
    rhos = [0.0, 0.2, 0.4, 0.6, 0.8]
    run_dirs = write_sweep(tmp_path / "runs", rhos, METHODS, [1, 2, 3, 4], **size)
    assert len(run_dirs) == 200
    out = tmp_path / "page.html"
    assert command.main([f"runs={tmp_path / 'runs'}", f"out={out}"]) == 0
    assert 1e6 < out.stat().st_size < 5e6


def test_watch_rewrites_the_page_when_runs_change(tmp_path, frozen_conf, capsys, monkeypatch):
    """Ctrl-C writes a last page that does not reload."""
    runs, out = tmp_path / "runs", tmp_path / "page.html"
    write_run(runs, 0.4, "fedavg", 1, 0.5)
    calls = []

    def sleep(seconds):
        calls.append((seconds, embedded_data(out.read_text())["every"]))
        if len(calls) == 2:
            write_run(runs, 0.4, "fedavg", 2, 0.5)
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert command.main([f"runs={runs}", f"out={out}", "watch=true", "every=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[:-1]] == ["1 run", "2 runs", "2 runs"]
    assert lines[-1] == "stopped; the page is no longer updated"
    assert calls == [(3, 3)] * 4 and embedded_data(out.read_text())["every"] == 0


def test_file_is_replaced_atomically(tmp_path, frozen_conf):
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


def test_published_table_as_html():
    """Text is escaped, a row label spans its lines, and missing results are marked."""
    columns = (Column("ρ<1", TableEntry("τ=0")), Column("ρ<1", TableEntry("τ=1", marks=("a",))))
    reproduced = (TableEntry("1.00", bold=True), TableEntry("–"))
    published = (TableEntry("2.00"), TableEntry("3.00", marks=("a", "b")))
    lines = (
        Line("Federated", TableEntry("A & B"), "reproduced", reproduced),
        Line("Federated", TableEntry(""), "published", published),
    )
    text = html(ReportTable("t", "T", "a <caption>", columns, lines, (("", "all"), ("a", "x > y"))))
    assert '<th scope="colgroup" colspan="2">ρ&lt;1</th>' in text
    assert "<caption>a &lt;caption&gt;</caption>" in text
    assert '<tr class="reproduced first"><th scope="rowgroup" rowspan="2">A &amp; B</th>' in text
    assert '<td><b>1.00</b></td><td class="none">–</td>' in text and "3.00<sup>a,b</sup>" in text
    assert "<li>all</li><li><sup>a</sup> x &gt; y</li>" in text


def test_vendored_library_matches_its_notice():
    source = (VENDOR / "uPlot.iife.min.js").read_text()
    (version,) = re.findall(r"\(v([\d.]+)\)", source[:200])
    assert f"| uPlot | {version} | MIT" in (VENDOR / "README.md").read_text()
    assert "The MIT License" in (VENDOR / "LICENSE").read_text()
