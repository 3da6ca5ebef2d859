"""Output, errors and exit codes of reports.build and reports.compare."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reports import build, compare

HERE = Path(__file__).parent
GOOD = f"runs={HERE / 'records' / 'good'}"
ROOT = HERE.parents[1]


@pytest.mark.parametrize(
    ("command", "arguments", "line"),
    [
        (
            build,
            ["tabel=all"],
            "unknown key tabel: did you mean table? available: table, runs, out, scale, accuracy",
        ),
        (
            build,
            ["fedcorr_table2"],
            "invalid argument 'fedcorr_table2': expected key=value; available: table, runs, ",
        ),
        (
            build,
            ["noise.rho=0.4"],
            "unknown key noise.rho: available: table, runs, out, scale, accuracy",
        ),
        (
            build,
            ["table=fedcor_table2"],
            "invalid table=fedcor_table2: did you mean fedcorr_table2? available: all, ",
        ),
        (build, ["table="], "invalid table=: available: all, fedcorr_table2, "),
        (
            build,
            ["accuracy=mean"],
            "invalid accuracy=mean: available: published, selected, last10, best, final",
        ),
        (build, ["scale=huge"], "invalid scale=huge: available: all, paper, laptop, smoke"),
        (
            build,
            ["runs="],
            "invalid runs='': expected one or more directories, separated by commas",
        ),
        (
            build,
            ["runs=/nowhere", "table=fedcorr_table9", "out=/dev/null/x"],
            "cannot use /dev/null/x/paper: Not a directory",
        ),
        (
            compare,
            ["bse=1"],
            "unknown key bse: available: runs, rows, cols, metric, baseline, scale, out",
        ),
        (compare, ["runs=/nowhere"], "cannot read /nowhere: no such directory"),
        (
            compare,
            [GOOD],
            "cannot compare runs of scales laptop, paper, smoke: select one with scale=laptop",
        ),
        (
            compare,
            [GOOD, "scale=smal"],
            "invalid scale=smal: available: laptop, paper, smoke",
        ),
        (
            compare,
            [GOOD, "scale=laptop", "cols=noise.ro"],
            "invalid cols=noise.ro: did you mean noise.rho? available: ",
        ),
        (
            compare,
            [GOOD, "scale=laptop", "metric=summary.bset"],
            "invalid metric=summary.bset: did you mean summary.best? available: ",
        ),
        (
            compare,
            [GOOD, "scale=laptop", "metric=scenario.hash"],
            "invalid metric=scenario.hash: did you mean scenario.noise_rate? available: ",
        ),
        (
            compare,
            [GOOD, "scale=laptop", "rows=noise.rho"],
            "invalid cols='noise.rho': expected another key than rows",
        ),
        (
            compare,
            [GOOD, "scale=laptop", "noise.tau=0.3"],
            "invalid noise.tau=0.3: available: 0, 0.5",
        ),
        (
            compare,
            [GOOD, "scale=paper", "train.lr=0.01", "baseline=lsg"],
            "invalid baseline=lsg: available: fedavg",
        ),
        (
            compare,
            [GOOD, "scale=laptop", "cols=partition.name"],
            "cannot average runs of cell method.name=fedavg partition.name=bernoulli_dirichlet:"
            " they differ in train.lr: 0.01, 0.5; select one with train.lr=0.01,"
            " or use train.lr as rows= or cols=",
        ),
    ],
)
def test_user_errors_are_one_line_with_exit_code_2(capsys, command, arguments, line):
    assert command.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"error: {line}")


def test_build_without_runs(capsys, tmp_path):
    assert build.main(["runs=/nowhere", "table=fedcorr_table9", f"out={tmp_path}"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "/nowhere: no such directory",
        "no completed runs found in /nowhere; reproduced values are left blank",
    ]
    assert (
        captured.out == f"fedcorr_table9 paper: 0 of 7 cells -> {tmp_path}/paper/fedcorr_table9.*\n"
    )
    assert "| FedAvg | reproduced | – |" in (tmp_path / "paper" / "fedcorr_table9.md").read_text(
        encoding="utf-8"
    )


def test_requested_scale_is_built(frozen_conf, capsys, tmp_path):
    assert build.main([GOOD, "table=fedcorr_table9", "scale=smoke", f"out={tmp_path}"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["smoke"]


def test_another_accuracy_can_be_reproduced(frozen_conf, capsys, tmp_path):
    """The best accuracies of FedAvg are one point above last10; none has held-out samples."""
    tables = {}
    for accuracy in ("published", "last10", "selected"):
        arguments = [GOOD, "table=fedcorr_table9", "scale=laptop", f"accuracy={accuracy}"]
        assert build.main([*arguments, f"out={tmp_path / accuracy}"]) == 0
        path = tmp_path / accuracy / "laptop" / "fedcorr_table9.md"
        tables[accuracy] = path.read_text(encoding="utf-8")
    assert "42.00 ± 2.00 (3)" in tables["published"] and "41.00 ± 2.00 (3)" in tables["last10"]
    assert "test split, mean of the last ten evaluations" in tables["last10"]
    assert "Published: best evaluation, chosen on the test split (oracle)." in tables["last10"]
    assert "42.00 ±" not in tables["selected"] and "41.00 ±" not in tables["selected"]


def test_near_misses_are_reported_for_scales_without_a_table(write_run, capsys, tmp_path):
    write_run(
        "dataset=cifar100", "method=fedavg", "noise.form=official", "noise.rho=0.4", "noise.tau=0.5"
    )
    assert (
        build.main([f"runs={tmp_path / 'runs'}", "table=fedcorr_table3", f"out={tmp_path / 'out'}"])
        == 0
    )
    assert (
        "fedcorr_table3 at scale laptop: 1 run excluded for partition.form=plain (cell: official)"
        in capsys.readouterr().err
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["paper"]


@pytest.mark.parametrize("command", [build, compare])
def test_help(capsys, command):
    assert command.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(key in shown for key in command.DEFAULTS)


def test_costs_are_ranked_lowest_first(write_run, capsys, tmp_path):
    write_run("dataset=cifar100", "method=fedavg", cost={"participations": 100})
    write_run("dataset=cifar100", "method=fedprox", cost={"participations": 50})
    out = tmp_path / "table.md"
    assert (
        compare.main(
            [
                f"runs={tmp_path / 'runs'}",
                "metric=cost.participations",
                "baseline=fedavg",
                f"out={out}",
            ]
        )
        == 0
    )
    text = out.read_text(encoding="utf-8")
    assert (
        "| fedprox | 1.00 |\n| fedavg | 2.00 |" in text
        and "| fedprox | 0.6 | -50 | – | 1 | 1 | 1 | 1 |" in text
    )


def test_bold_needs_seeds_and_correction(write_run, capsys, tmp_path):
    """Seven seeds with equal signs: p is 2 / 2^7, for two columns 0.031; one seed is never bold."""
    for seed in range(1, 8):
        for method, best in (("fedavg", 0.5), ("fedprox", 0.6)):
            for rho in ("0.4", "0.6"):
                overrides = ("dataset=cifar100", f"method={method}", f"noise.rho={rho}")
                write_run(*overrides, seed=seed, best=best + seed / 100)
    out = tmp_path / "table.md"
    arguments = [f"runs={tmp_path / 'runs'}", f"out={out}", "baseline=fedavg"]
    assert compare.main(arguments) == 0
    text = out.read_text(encoding="utf-8")
    assert "| fedavg | 54.00 ± 2.16 (7) |" in text and "| fedprox | **64.00 ± 2.16 (7)** |" in text
    assert "| fedprox | 0.4 | +10.00 | +10.00 to +10.00 | 7 | 0.0156 | 0.0156 | 0.0312 |" in text
    assert "## Over settings: noise.rho 0.4, 0.6" in text
    assert "| 1.00 | 1.00 to 1.00 |\n| fedavg | 54.00 |" in text
    assert compare.main([*arguments, "seed=1"]) == 0
    assert "**" not in out.read_text(encoding="utf-8")


def test_forgetting_is_best_minus_last10(write_run, capsys, tmp_path):
    for method, last10 in (("fedavg", 0.4), ("fedprox", 0.45)):
        summary = {"best": 0.5, "last10": last10, "final": 0.4}
        write_run("dataset=cifar100", f"method={method}", summary=summary)
    out = tmp_path / "table.md"
    arguments = [f"runs={tmp_path / 'runs'}", f"out={out}", "metric=summary.forgetting"]
    assert compare.main(arguments) == 0
    text = out.read_text(encoding="utf-8")
    assert "| fedavg | 10.00 (1) |\n| fedprox | 5.00 (1) |" in text
    assert "| fedprox | 1.00 |\n| fedavg | 2.00 |" in text, "less is better"


def test_comparison_says_which_hyperparameters_differ(write_run, capsys, tmp_path):
    write_run("method=fedavg", best=0.5)
    write_run("method=fedcorr", "hyperparameters=tuned", best=0.6)
    runs = f"runs={tmp_path / 'runs'}"
    assert compare.main([runs, f"out={tmp_path / 'out.md'}"]) == 0
    text = (tmp_path / "out.md").read_text()
    assert "protocol fedcorr, hyperparameters common (fedavg), tuned (fedcorr)" in text
    write_run("method=fedavg", "hyperparameters=tuned", seed=2)
    assert compare.main([runs]) == 2
    assert "differ in hyperparameters: common, tuned; select one" in capsys.readouterr().err
    assert compare.main([runs, "hyperparameters=tuned"]) == 0
    write_run("method=fedprox", "hyperparameters=tuned", "protocol=lsg")
    assert compare.main([runs, "hyperparameters=tuned", f"out={tmp_path / 'out.md'}"]) == 0
    text = (tmp_path / "out.md").read_text()
    assert "protocol fedcorr (fedavg, fedcorr), lsg (fedprox), hyperparameters tuned" in text


def test_precisions_are_not_mixed(write_run, capsys, tmp_path):
    write_run("method=fedavg", best=0.5)
    record_file = write_run("method=fedavg", best=0.6) / "record.json"
    record = json.loads(record_file.read_text())
    record["config"]["precision"] = "bf16"
    record_file.write_text(json.dumps(record))
    runs, out = f"runs={tmp_path / 'runs'}", tmp_path / "out.md"
    assert compare.main([runs]) == 2
    assert "differ in executor.precision: bf16, fp32; select one" in capsys.readouterr().err
    assert compare.main([runs, "cols=executor.precision", f"out={out}"]) == 0
    assert "| fedavg | 60.00 (1) | 50.00 (1) |" in out.read_text()


def test_errors_and_memorized_labels_are_ranked_lowest_first(write_run, capsys, tmp_path):
    names = ("clients/rate_error", "labels/harmed", "memorization/wrong")
    for method, value in (("fedavg", 0.4), ("fedprox", 0.2)):
        write_run(f"method={method}", metrics=dict.fromkeys(names, value))
    for name in names:
        out = tmp_path / "out.md"
        assert (
            compare.main([f"runs={tmp_path / 'runs'}", f"metric=metrics.{name}", f"out={out}"]) == 0
        )
        assert "| fedprox | 1.00 |\n| fedavg | 2.00 |" in out.read_text()


def test_columns_are_ordered_by_number_with_null_last(write_run, capsys, tmp_path):
    for noise in ("noise.rho=0.05", "noise.rho=0.4", "noise.rho=1"):
        write_run("dataset=cifar100", noise)
    write_run("dataset=cifar100", "noise=symmetric")
    assert compare.main([f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'x.md'}"]) == 0
    assert (tmp_path / "x.md").read_text(encoding="utf-8").splitlines()[
        2
    ] == "| method.name \\ noise.rho | 0.05 | 0.4 | 1 | null |"


def test_commands_do_not_import_torch():
    program = (
        "import sys, reports.build, reports.compare;"
        "reports.build.main(['runs=/nowhere', 'table=fedcorr_table9', 'out=/dev/null/x']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'benchmarks.loop')))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True
        ).returncode
        == 0
    )
