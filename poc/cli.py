"""The command line: one function a command, no logic. Heavy imports only where they are used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cedana_poc import __version__
from cedana_poc.errors import UserError
from cedana_poc.signals import tidy_end

app = typer.Typer(
    name="cedana-poc",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="What checkpointing could cover on a Slurm cluster, from its accounting history.",
)

Columns = Annotated[
    str, typer.Option(help="Names of the columns, comma-separated, for files without a header.")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cedana-poc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def analyze(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="sacct output: -P, -p or any --delimiter, fixed width, --json; gzip or zstd; "
            "several files may overlap; - is standard input.",
        ),
    ],
    columns: Columns = "",
    timezone: Annotated[
        str, typer.Option(help="Zone of the times in the files, such as Europe/Berlin or UTC.")
    ] = "",
    since: Annotated[
        str, typer.Option(help="Keep runs that ended at or after this date or time.")
    ] = "",
    until: Annotated[str, typer.Option(help="Keep runs that ended before this date or time.")] = "",
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Keep runs in this partition, or in any of a list a,b; may be repeated."),
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            help="Node sizes: the output of `scontrol show nodes --oneliner`, or CSV with "
            "node,cpus,memory_mb,gpus. Gives node-equivalent hours and shares of capacity."
        ),
    ] = None,
    json: Annotated[
        str, typer.Option(metavar="OUT", help="Write the analysis as JSON; - prints only that.")
    ] = "",
    html: Annotated[Path | None, typer.Option(metavar="OUT", help="Write one HTML page.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the tables as a folder of CSV files.")
    ] = None,
    pseudonyms: Annotated[
        bool,
        typer.Option("--pseudonyms/--names", help="Show users as keyed hashes, or by name."),
    ] = True,
    pseudonym_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Key of the pseudonyms; made once for each account."),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, max=1000, help="Rows in tables of users, runs and chains.")
    ] = 10,
) -> None:
    """Count what ended at its time limit in sacct history, and what that exposed.

    Example: sacct -a -D -P -S 2026-01-01 -E 2026-03-31 -s CA,CD,F,NF,OOM,PR,RQ,TO -o ALL > jobs.txt
    then: cedana-poc analyze jobs.txt --timezone Europe/Berlin --html report.html

    Exit codes: 0 done; 2 bad usage or input, nothing written; 128 + n ended by signal n,
    such as 130 for ctrl-C.
    """
    from cedana_poc.command import Request, run

    named = tuple(name.strip() for name in columns.split(",")) if columns.strip() else ()
    request = Request(
        files=tuple(files),
        columns=named,
        timezone=timezone or None,
        since=since,
        until=until,
        partitions=tuple(partition or ()),
        nodes=nodes,
        json=json,
        html=html,
        data=data,
        pseudonyms=pseudonyms,
        pseudonym_key=pseudonym_key,
        top=top,
    )
    try:
        code = run(request)
    except UserError as error:
        print(f"cedana-poc: {error}", file=sys.stderr)
        code = error.exit_code
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the console script."""
    with tidy_end():
        app()
