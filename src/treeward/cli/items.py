"""`treeward items`: add items to a running service, change them, or remove them."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from treeward.cli.console import progress, say
from treeward.cli.inputs import Items, columns_of, load_items
from treeward.cli.options import Columns
from treeward.cli.remote import Key, Public, remote
from treeward.core.errors import InvalidArgument, TreewardError

app = typer.Typer()

_AT_ONCE = 500


@app.command()
def put(
    service: Public,
    items: Items,
    column: Columns = None,
    key: Key = None,
) -> None:
    """Add items, or give known ones another vector, title or column. They can be shown when this returns.

    A table without vectors changes known items: columns id and stock, for instance, change the stock. An empty cell
    clears the value.
    """
    shop = load_items(items, columns_of(column), need_vectors=False)
    vectors = [[float(f"{one:.8g}") for one in vector] for vector in shop.vectors.tolist()] if shop.dim else None
    rows: list[dict[str, Any]] = []
    gone = set(shop.gone)
    for at, row in enumerate(shop.table.iter_rows(named=True)):
        if row["id"] in gone:
            continue
        # Without vectors the table changes known items, so an empty cell clears the value.
        columns = {
            name: value for name, value in row.items() if name != "id" and (vectors is None or value is not None)
        }
        vector = {"vector": vectors[at]} if vectors is not None else {}
        rows.append({"item": row["id"], "columns": columns, **vector})
    texts = [{**row, "item": str(row["item"])} for row in rows] if shop.ids_are_integers else []
    try:
        _send(service, key, [rows, texts] if texts else [rows], "put_items", "putting items in")
    except TreewardError as error:
        raise TreewardError(f"{items} to {error}") from error
    say(f"{len(rows):,} item(s) are in.")


@app.command()
def remove(
    service: Public,
    ids: Annotated[list[str], typer.Argument(help="Item ids, or @FILE with one id per line.", show_default=False)],
    key: Key = None,
) -> None:
    """Remove items: none of them is shown once this has returned. Earlier events about them still count."""
    wanted: list[str] = []
    for one in ids:
        try:
            lines = Path(one[1:]).read_text(encoding="utf-8").splitlines() if one.startswith("@") else [one]
            wanted += [line.strip() for line in lines if line.strip()]
        except OSError as error:
            raise InvalidArgument(
                "items remove", "IDS", "ids, or @ and a file that can be read", f"{one} ({error.strerror})"
            ) from error
    whole = all(re.fullmatch("-?[0-9]{1,18}", one) for one in wanted)
    ids_of: list[list[Any]] = [[int(one) for one in wanted], list(wanted)] if whole else [list(wanted)]
    gone = _send(service, key, ids_of, "remove_items", "removing items")
    say(f"{gone:,} of {len(set(wanted)):,} item(s) were there, and are gone.")


def _send(service: str, key: str | None, ways: list[list[Any]], call: str, stage: str) -> int:
    """Send rows in parts, and return how many had an effect; `ways` has the ids as numbers, then as texts."""
    for attempt, rows in enumerate(ways):
        try:
            return _sent(service, key, rows, call, stage)
        except TreewardError as error:  # ids that look like numbers may be texts: nothing was changed then
            if attempt + 1 == len(ways) or "as in the catalogue" not in str(error):
                raise
    return 0


def _sent(service: str, key: str | None, rows: list[Any], call: str, stage: str) -> int:
    done = 0
    with remote("items", "public", service, key, timeout=60, tries=5) as client, progress() as report:
        for first in range(0, len(rows), _AT_ONCE):
            done += int(getattr(client, call)(rows[first : first + _AT_ONCE]))
            report(stage, min(first + _AT_ONCE, len(rows)), len(rows))
    return done
