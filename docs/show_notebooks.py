"""Hook of mkdocs: shows the notebooks as pages, with the outputs that `run_notebooks.py` stored."""

import base64
import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace every notebook by a page, its pictures, and the notebook as a download."""
    for source in [
        file for file in files if file.src_uri.startswith(("notebooks/", "show_notebooks", "run_notebooks"))
    ]:
        files.remove(source)
        if not source.src_uri.endswith(".ipynb"):
            continue
        stored = Path(source.abs_src_path or "").read_text(encoding="utf-8")
        notebook = nbformat.reads(stored, as_version=4)
        text, pictures = page(notebook, source.name)
        files.append(Page.generated(config, source.src_uri, content=text))
        for name, content in {
            f"{source.name}.ipynb": stored.encode(),
            **pictures,
        }.items():
            files.append(File.generated(config, f"notebooks/{source.name}/{name}", content=content))
    return files


class Page(File):
    """A page whose source does not end in .md, so that links may name the notebook."""

    def is_documentation_page(self) -> bool:
        """Tell mkdocs to render it."""
        return True


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
