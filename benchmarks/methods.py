"""`python -m benchmarks.methods`: the registered methods as a table."""

from dataclasses import fields

from rich.table import Table

from benchmarks.terminal.summary import console
from methods.core import registry


def table() -> Table:
    columns = Table(
        "method",
        "family",
        "what it does",
        "paper",
        "models sent",
        "a client keeps",
        "may use the true noise in",
        title="Methods",
    )
    for info in registry.list_methods():
        oracle = ", ".join(
            f.name.removesuffix("_is_oracle")
            for f in fields(info.params)
            if f.name.endswith("_is_oracle")
        )
        columns.add_row(
            info.name,
            info.family,
            info.summary.rstrip("."),
            info.paper,
            str(info.num_models),
            info.cls.client_state_doc,
            oracle or "never",
        )
    return columns


if __name__ == "__main__":
    console().print(table())
