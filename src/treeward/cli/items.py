"""`treeward items`: let items come and go in a running service."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.cli.console import progress, say
from treeward.cli.remote import Key, Public, remote
from treeward.cli.tables import ItemColumns, load_items
from treeward.core.errors import InvalidArgument, TreewardError

app = typer.Typer(help="Let items come and go in a running service.", no_args_is_help=True)

_AT_ONCE = 500


@app.command()
def put(
    service: Public,
    items: Annotated[Path, typer.Argument(help="Items: .csv, .tsv, .parquet, .npy or a saved catalogue.")],
    column: ItemColumns = None,
    key: Key = None,
) -> None:
    """Add items, or give known ones another vector, title or column: each can be shown as soon as it is in.

    Without vectors, and with any of the columns, known items are changed: a table of id and stock changes the stock; an
    empty cell empties it.
    """
    shop = load_items(items, column, need_vectors=False)
    vectors = [[float(f"{one:.8g}") for one in vector] for vector in shop.vectors.tolist()] if shop.dim else None
    rows: list[dict[str, Any]] = []
    gone = set(shop.gone)
    for at, row in enumerate(shop.table.iter_rows(named=True)):
        if row["id"] in gone:
            continue
        # A table without vectors changes what it names, so an empty cell empties it.
        columns = {
            name: value for name, value in row.items() if name != "id" and (vectors is None or value is not None)
        }
        vector = {"vector": vectors[at]} if vectors is not None else {}
        rows.append({"item": row["id"], "columns": columns, **vector})
    texts = [{**row, "item": str(row["item"])} for row in rows] if shop.ids_are_integers else []
    _send(service, key, [rows, texts] if texts else [rows], "put_items", "Putting items in")
    say(f"{len(rows):,} item(s) are in.")


@app.command()
def remove(
    service: Public,
    ids: Annotated[list[str], typer.Argument(help="Item ids; @FILE: one a line.", show_default=False)],
    key: Key = None,
) -> None:
    """Take items away: none is shown once this has returned. What users did with them still counts."""
    wanted: list[str] = []
    for one in ids:
        try:
            lines = Path(one[1:]).read_text(encoding="utf-8").splitlines() if one.startswith("@") else [one]
            wanted += [line.strip() for line in lines if line.strip()]
        except OSError as error:
            raise InvalidArgument("items remove", "ids", "a file that can be read", f"{one[1:]} ({error})") from error
    whole = all(re.fullmatch("-?[0-9]{1,18}", one) for one in wanted)
    ids_of: list[list[Any]] = [[int(one) for one in wanted], list(wanted)] if whole else [list(wanted)]
    gone = _send(service, key, ids_of, "remove_items", "Taking items away")
    say(f"{gone:,} of {len(set(wanted)):,} item(s) were there, and are gone.")


def _send(service: str, key: str | None, ways: list[list[Any]], call: str, stage: str) -> int:
    """Send rows, a part at a time, and return how many did something; `ways`: ids as numbers, else as texts."""
    for attempt, rows in enumerate(ways):
        try:
            return _sent(service, key, rows, call, stage)
        except TreewardError as error:  # ids may be texts of digits: nothing was done then
            if attempt + 1 == len(ways) or "ids, which are" not in str(error):
                raise
    return 0


def _sent(service: str, key: str | None, rows: list[Any], call: str, stage: str) -> int:
    done = 0
    with remote("items", "public", service, key, timeout=60, tries=5) as client, progress() as report:
        for first in range(0, len(rows), _AT_ONCE):
            done += int(getattr(client, call)(rows[first : first + _AT_ONCE]))
            report(stage, min(first + _AT_ONCE, len(rows)), len(rows))
    return done
