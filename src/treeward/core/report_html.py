"""Reports as one HTML file: headings, text, tables and plots. It needs no network, and follows light and dark mode."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --ink: #22262b; --soft: #5d6670; --back: #ffffff; --line: #d9dde2; --card: #f6f7f9 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #a2abb5; --back: #16191d; --line: #363c44; --card: #1e2328 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--back); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem }
p { margin: .4rem 0; max-width: 48rem }
.soft { color: var(--soft); font-size: .92rem }
.warning { border-left: .3rem solid #c4622d; background: var(--card); padding: .5rem .8rem; margin: .8rem 0;
  font-weight: 600 }
.scroll { overflow-x: auto; margin: .8rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem }
th, td { padding: .28rem .8rem .28rem 0; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top }
td { white-space: nowrap }
th { font-weight: 600 }
th:first-child, td:first-child { text-align: left }
td.text { text-align: left; white-space: normal; overflow-wrap: anywhere }
tr.best td { font-weight: 600 }
figure { margin: .8rem 0; background: var(--card); border-radius: 8px; padding: .4rem; overflow: hidden }
figcaption { color: var(--soft); font-size: .92rem; padding: 0 .6rem .3rem }
"""
_GREY = "#858d97"
COLOURS = ("#5b7fb4", "#d98f4e", "#8d7fb8", "#4c8c6b", "#b7657b", "#c2a83e", "#4fa3a5", "#a5714f")
"""Colours that colour-blind readers can distinguish, on both backgrounds."""


def heading(text: str) -> str:
    """Return a heading of a section."""
    return f"<h2>{escape(text)}</h2>"


def text(*sentences: str, soft: bool = False) -> str:
    """Return a paragraph."""
    return f"<p{' class=soft' if soft else ''}>{escape(' '.join(sentences))}</p>"


def warning(words: str) -> str:
    """Return a highlighted paragraph."""
    return f"<p class=warning role=alert>{escape(words)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", best: int | None = None) -> str:
    """Return a table; the first column is text, the others are numbers; the row `best` is in bold.

    A column that is empty in every row is left out.
    """
    held = [[str(cell) for cell in row] for row in rows]
    filled = [at for at in range(len(head)) if at == 0 or any(row[at] for row in held)]
    top = "".join(f"<th scope=col>{escape(str(head[at]))}</th>" for at in filled)
    body = ""
    for index, row in enumerate(held):
        cells = "".join(f"<td>{escape(row[at])}</td>" for at in filled)
        body += f"<tr{' class=best' if index == best else ''}>{cells}</tr>"
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<div class=scroll><table>{named}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and their values; empty values are left out."""
    texts = ((name, plain(value)) for name, value in pairs)
    rows = "".join(
        f'<tr><td>{escape(str(name))}</td><td class="text">{escape(value)}</td></tr>' for name, value in texts if value
    )
    return f"<div class=scroll><table><tbody>{rows}</tbody></table></div>"


def plain(value: object) -> str:
    """Return a value as text for readers: few digits, no brackets around lists and mappings.

    Examples
    --------
    >>> plain({"loader": "movielens", "read": {"events": 100_836}, "auc": 0.7981112275, "own": False})
    'loader movielens, read (events 100836), auc 0.7981, own no'
    >>> plain([1, 25, 608])
    '1, 25, 608'
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name} ({plain(one)})" if isinstance(one, Mapping | list | tuple) else f"{name} {plain(one)}"
            for name, one in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return str(value)


def plot(figure: Any, caption: str = "", height: int = 400) -> str:
    """Return a plotly figure, readable on a light and on a dark page."""
    lines = {"gridcolor": "rgba(133,141,151,.25)", "zerolinecolor": "rgba(133,141,151,.4)", "linecolor": _GREY}
    figure.update_layout(
        height=height,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _GREY, "family": "system-ui, sans-serif", "size": 13},
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"namelength": -1, "bgcolor": "#ffffff", "font": {"color": "#22262b"}},
    )
    figure.update_xaxes(**lines)
    figure.update_yaxes(**lines, hoverformat=".4~g")
    made: str = figure.to_html(
        # Without the toolbar, which would cover the legend; the mouse can do the same.
        include_plotlyjs=False,
        full_html=False,
        config={"responsive": True, "displayModeBar": False},
    )
    below = f"<figcaption>{escape(caption)} Drag to zoom in, double-click to see all.</figcaption>" if caption else ""
    return f"<figure>{made}{below}</figure>"


def page(title: str, parts: Iterable[str]) -> bytes:
    """Return the whole page."""
    from plotly.offline import get_plotlyjs

    body = "\n".join(parts)
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(title)}</title>"
        f'<meta name=viewport content="width=device-width, initial-scale=1"><style>{_STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><main><h1>{escape(title)}</h1>\n{body}\n</main></body></html>"
    ).encode(errors="replace")
