"""Terminal tables of runs: dry run, results of a sweep, summary of one run."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from benchmarks.config.labels import identifying_overrides, protocol_caption, run_label, run_title
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import PlannedRun
from benchmarks.records.estimates import estimate, format_total, load_timed_records
from benchmarks.records.files import LOG_FILE
from benchmarks.records.lease import read_lease
from benchmarks.records.record import (
    FINAL_STATUSES,
    TESTED,
    CorruptRecordError,
    Record,
    read_record,
)
from benchmarks.records.references import References, find_references
from benchmarks.records.stale import find_finished
from benchmarks.terminal.console import make_console
from methods.core.errors import UserError

REPAIRED_NOTE = (
    "damage repaired: (last 10 - FedAvg) / (FedAvg on clean labels - FedAvg) of the same scenario;"
    " runs with clean labels are references"
)


def status_line(record: Record) -> str:
    """The last line of a run in the terminal and in the log."""
    if record.summary is None:
        return f"{record.status}: {record.reason}"
    best, last = _percent(record.summary.best), _percent(record.summary.last10)
    return f"done: best {best}, last 10 {last}, {record.time.seconds:.1f} s"


def finished_run_ids(runs: Sequence[PlannedRun]) -> set[str]:
    """Runs with a final record, which are skipped. Prints a line if their source has changed."""
    finished: set[str] = set()
    lines: Counter[str] = Counter()
    for _, config in runs:
        record, line = find_finished(config)
        if record is not None:  # a run that is repeated reports the change itself
            finished.add(config.run_id)
            lines += Counter([line] if line else [])
    for line, count in lines.items():
        subject = "1 completed run" if count == 1 else f"{count} completed runs"
        make_console().print(f"{subject}: {line}", soft_wrap=True)
    return finished


def print_planned_runs(runs: Sequence[PlannedRun], finished: set[str]) -> None:
    """List the runs of a sweep with their status and estimated time.

    `~` marks an approximate estimate; `?` means that no comparable run has finished.
    """
    runs_dir = runs[0].config.runs_dir
    records = load_timed_records(runs_dir)
    pending = [config for _, config in runs if config.run_id not in finished]
    times = {config.run_id: estimate(config, records) for config in pending}
    remaining = f", {format_total(times.values())} remaining" if times else ""
    first, *others = ([*identifying_overrides(overrides)] for overrides, _ in runs)
    shared = [text for text in first if others and all(text in other for other in others)]
    title = f"{len(runs)} runs, {len(finished)} done{remaining}; records in {runs_dir}/"
    table = Table(
        *("run", "status", "estimated time", "run id"),
        title=f"{title}\nall runs: {' '.join(shared)}" if shared else title,
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )
    for overrides, config in runs:
        time = "" if config.run_id in finished else str(times[config.run_id] or "?")
        status = _status(config)
        if status in (*FINAL_STATUSES, "damaged") and config.run_id not in finished:
            status = f"{status}, to repeat"
        label = run_label([text for text in overrides if text not in shared])
        table.add_row(label, status, time, config.run_id)
    make_console().print(table)


def print_results_table(runs: Sequence[PlannedRun], finished: set[str]) -> int:
    """Print one row per run, and the reasons of unsuccessful runs.

    `finished` are the runs that an earlier command completed. Returns exit code 1 if a run
    failed or stopped.
    """
    keys = _varied_keys(runs)
    counts = {"done": 0, "diverged": 0, "failed": 0, "skipped": 0}
    rows: list[dict[str, str]] = []
    reasons: list[str] = []
    records = {config.run_id: read_record(config.run_dir) for _, config in runs}
    references = find_references(filter(None, records.values()))
    for overrides, config in runs:
        record = records[config.run_id]
        status, reason = (record.status, record.reason) if record else _describe_unfinished(config)
        is_earlier = config.run_id in finished
        counted = "skipped" if is_earlier else status
        counts[counted] = counts.get(counted, 0) + 1
        if status != "done" and not is_earlier:
            log = f" ({config.run_dir / LOG_FILE})" if record else ""
            reasons.append(f"{run_label(overrides)}: {status}: {reason}{log}")
        pairs = (text.partition("=") for text in overrides)  # ~key has no value
        values = {key: value for key, _, value in pairs} | {"labels": config.labels}
        results = _results(record, references.get(config.run_id)) if record else {}
        shown = f"{status} (earlier)" if is_earlier else status
        rows.append({key: values.get(key, "") for key in keys} | {"status": shown} | results)
    choices = protocol_caption(
        (config.protocol, config.hyperparameters, config.method.name) for _, config in runs
    )
    title = f"Accuracy of the {TESTED}; {choices}"
    table = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True)
    all_columns = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in all_columns if any(row.get(name, "-") != "-" for row in rows)]
    for name in columns:
        is_number = name not in (*keys, "status")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        table.add_row(*(row.get(name, "-") for name in columns))
    console = make_console()
    console.print(table)
    total = ", ".join(f"{count} {status}" for status, count in counts.items())
    console.print(f"{total}; records in {runs[0].config.runs_dir}/")
    if references:
        console.print(REPAIRED_NOTE, soft_wrap=True)
    for line in reasons:
        console.print(line, soft_wrap=True)
    return 1 if counts["failed"] or "stopped" in counts else 0


def print_run_summary(config: RunConfig, is_earlier: bool) -> int:
    """Print the summary of one run. Returns exit code 1 unless its status is `done`."""
    record = read_record(config.run_dir)
    if record is None:
        raise UserError(f"cannot execute {config.run_dir}: {_describe_unfinished(config)[1]}")
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("run", run_title(config))
    choices = protocol_caption([(config.protocol, config.hyperparameters, config.method.name)])
    table.add_row("setting", f"{choices}, scale {config.scale}")
    table.add_row("status", f"{record.status}: {record.reason}".removesuffix(": "))
    for name, text in _summary_rows(record):
        table.add_row(name, text)
    note = " (already completed; use force=true to rerun)" if is_earlier else ""
    table.add_row("run directory", f"{config.run_dir}{note}")
    make_console().print(table)
    return 0 if record.status == "done" else 1


def _describe_unfinished(config: RunConfig) -> tuple[str, str]:
    """Status of a run that was to be executed and has no record, and what to do."""
    lease = read_lease(config.run_dir)
    if lease is None or lease.is_stale:
        return "stopped", "no record was written; rerun the same command"
    return "running elsewhere", f"it is running on {lease.holder}; wait until it has finished"


def _summary_rows(record: Record) -> list[tuple[str, str]]:
    rows = []
    if summary := record.summary:
        best, last = _percent(summary.best), _percent(summary.last10)
        text = f"best {best} (round {summary.best_round}), last 10 {last}"
        if summary.selected is not None:
            chosen = f"selected {_percent(summary.selected)} (round {summary.selected_round})"
            text = f"{chosen}, {text}"
        rows.append(("test accuracy", f"{text}, final {_percent(summary.final)}"))
    names = {"precision": "precision", "recall": "recall", "f1": "F1"}
    metrics = {shown: record.metrics.get(f"clients/{name}") for name, shown in names.items()}
    found = [f"{shown} {value:.3f}" for shown, value in metrics.items() if value is not None]
    rows.append(("noisy clients", ", ".join(found) or "not estimated by this method"))
    if accuracy := _label_accuracy(record):
        given, corrected = map(_percent, accuracy)
        rows.append(("label accuracy", f"{given} given, {corrected} after correction"))
    cost = record.cost
    text = f"{cost.participations} participations, {cost.samples_trained} samples trained"
    megabytes = (cost.bytes_down + cost.bytes_up) / 1e6
    text += f", {megabytes:.1f} MB sent, {record.time.seconds:.1f} s"
    return [*rows, ("cost", text)]


def _results(record: Record, references: References | None) -> dict[str, str]:
    """Values by column; `-` where there is none."""
    summary, accuracy = record.summary, _label_accuracy(record)
    repaired = references.repaired(summary) if summary and references else None
    selected = summary.selected if summary else None
    f1 = record.metrics.get("clients/f1")
    return {
        "selected\n%": "-" if selected is None else f"{100 * selected:.2f}",
        "best %\n(oracle)": f"{100 * summary.best:.2f}" if summary else "-",
        "last\n10 %": f"{100 * summary.last10:.2f}" if summary else "-",
        "damage\nrepaired %": "-" if repaired is None else f"{100 * repaired:.1f}",
        "noisy-\nclient F1": "-" if f1 is None else f"{f1:.3f}",
        "label\naccuracy %": " -> ".join(f"{100 * value:.1f}" for value in accuracy or ()) or "-",
        "partici-\npations": str(record.cost.participations),
        "time\n[s]": f"{record.time.seconds:.1f}",
    }


def _label_accuracy(record: Record) -> tuple[float, float] | None:
    """Accuracy of the given and of the corrected labels."""
    metrics = record.metrics
    if "labels/accuracy_after" not in metrics:
        return None
    return metrics["labels/accuracy_before"], metrics["labels/accuracy_after"]


def _status(config: RunConfig) -> str:
    try:
        record = read_record(config.run_dir)
    except CorruptRecordError:
        return "damaged"
    return "pending" if record is None else record.status


def _varied_keys(runs: Sequence[PlannedRun]) -> list[str]:
    """Keys whose values differ between runs; all keys if none differs."""
    values: dict[str, set[str]] = {}
    for overrides, config in runs:
        for text in [*identifying_overrides(overrides), f"labels={config.labels}"]:
            key, _, value = text.partition("=")
            values.setdefault(key, set()).add(value)
    varied = [key for key, found in values.items() if len(found) > 1]
    return varied or [key for key in values if key != "labels"]


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"
