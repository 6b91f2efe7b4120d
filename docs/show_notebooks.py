"""Hook of mkdocs: runs the notebooks when the site is built, and shows them as pages."""

import base64
import re
import tempfile
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

_SECONDS_PER_CELL = 600  # the first use of a kernel compiles it
_watched = False


def on_startup(*, command: str, dirty: bool) -> None:
    """Remember whether this is `mkdocs serve`, which shows notebooks without running them."""
    global _watched
    _watched = command == "serve"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace every notebook by a page, its pictures, and the notebook as a download."""
    for source in [file for file in files if file.src_uri.startswith(("notebooks/", "show_notebooks"))]:
        files.remove(source)
        if not source.src_uri.endswith(".ipynb"):
            continue
        bare = Path(source.abs_src_path or "").read_text(encoding="utf-8")
        notebook = nbformat.reads(bare, as_version=4)
        if not _watched:
            run(notebook, source.src_uri)
        text, pictures = page(notebook, source.name)
        files.append(Page.generated(config, source.src_uri, content=text))
        for name, content in {
            f"{source.name}.ipynb": bare.encode(),
            **pictures,
        }.items():
            files.append(File.generated(config, f"notebooks/{source.name}/{name}", content=content))
    return files


class Page(File):
    """A page whose source does not end in .md, so that links may name the notebook."""

    def is_documentation_page(self) -> bool:
        """Tell mkdocs to render it."""
        return True


def run(notebook: nbformat.NotebookNode, name: str) -> None:
    """Run a notebook's cells in a kernel, in a temporary folder; an error or a warning stops the build."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as sockets,
    ):
        how = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        where = {"metadata": {"path": folder}}
        try:
            NotebookClient(
                notebook,
                timeout=_SECONDS_PER_CELL,
                resources=where,
                config=how,
                coalesce_streams=True,
            ).execute()
        except CellExecutionError as error:
            raise PluginError(f"{name}: {error}") from error
        if any(Path(folder).iterdir()):
            raise PluginError(f"{name}: left files behind: {sorted(path.name for path in Path(folder).iterdir())}")
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                raise PluginError(f"{name}: a cell warned: {output.text}")


def page(notebook: nbformat.NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures."""
    parts, pictures = [], dict[str, bytes]()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            parts.append(_shown(output, name, pictures))
    first, *rest = parts
    take = f'<a href="{name}.ipynb" download>Download this notebook</a>, open it in Jupyter and change what you like.'
    return "\n\n".join([first, take, *rest]), pictures


def _shown(output: nbformat.NotebookNode, name: str, pictures: dict[str, bytes]) -> str:
    if output.output_type == "stream":
        return _text(output.text)
    data = output.data
    if "image/png" in data:
        picture = f"{len(pictures) + 1}.png"
        pictures[picture] = base64.b64decode(data["image/png"])
        return f"![What the cell above draws]({name}/{picture})"
    if "text/html" in data:
        return _table(data["text/html"])
    return _text(data["text/plain"])


def _table(html: str) -> str:
    """Return a polars table in the theme's style, without shape, types and quotes."""
    noise = r"<style>.*?</style>|<small>.*?</small>|<tr>(<td>\w+</td>)+</tr>(?=</thead>)"
    bare = re.sub(noise, "", html, flags=re.DOTALL)
    return re.sub(r'<table[^>]*class="dataframe"[^>]*>', "<table>", bare).replace("&quot;", "")


def _text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
