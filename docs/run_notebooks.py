"""Run the notebooks and store what their cells print and draw: ``python docs/run_notebooks.py [NUMBER ...]``.

A reader of the repository and the site's pages see what is stored. `tests/test_notebooks.py` checks that it is current.
"""

import base64
import hashlib
import io
import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
MOVIELENS = "MOVIELENS_SMALL", ROOT.parent / "shared" / "data" / "movielens-small"
"""The variable that names the folder of the real log, and where it is looked for when the variable is not set."""

KEPT = {"text/plain", "text/html", "image/png"}
MOST_BYTES = 400_000
_SECONDS_PER_CELL = 600  # the first use of a kernel compiles it
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as in `make test`: sums do not depend on cores


def code_digest(notebook: dict[str, Any]) -> str:
    """Return the SHA-256 of a notebook's code."""
    return _digest("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")


def outputs_digest(notebook: dict[str, Any]) -> str:
    """Return the SHA-256 of a notebook's outputs."""
    return _digest(cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True).encode()).hexdigest()


@cache
def arithmetic() -> str:
    """Return a digest of this machine's arithmetic.

    Another kind of processor adds in another order, and the last digits differ. Trees and decisions that depend on them
    then differ too. So the figures that a notebook prints are compared only where the arithmetic is the same.
    """
    import numpy as np
    import scipy.linalg
    import torch
    from llvmlite.binding import get_host_cpu_name
    from threadpoolctl import threadpool_limits

    double = np.sin(np.arange(40_000.0)).reshape(200, 200)
    single = double.astype(np.float32)
    tensor = torch.from_numpy(single)
    with threadpool_limits(1):
        made = [double @ double, single @ single, np.linalg.svd(double)[1], scipy.linalg.svd(single)[1]]
        made += [np.exp(single), np.log1p(abs(double)), (tensor @ tensor).numpy(), torch.sigmoid(tensor).numpy()]
    return _digest([get_host_cpu_name(), *(one.tobytes().hex() for one in made)])


def refresh(path: Path) -> None:
    """Run a notebook in a kernel, as Jupyter does, and store its outputs; an error or a warning changes nothing."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    run(notebook, path.name)
    told = json.loads(nbformat.writes(notebook))
    told["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "treeward": {"code": code_digest(told), "outputs": outputs_digest(told), "arithmetic": arithmetic()},
    }
    text = json.dumps(told, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise SystemExit(f"{path.name}: {len(text.encode()):,} bytes with outputs, more than {MOST_BYTES:,}")
    path.write_text(text, encoding="utf-8")


def run(notebook: Any, name: str) -> None:
    """Run a notebook's cells in a temporary folder."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    variable, folder_of_the_log = MOVIELENS
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as sockets,
        tempfile.TemporaryDirectory() as no_matplotlibrc,
    ):
        NotebookClient(
            notebook,
            timeout=_SECONDS_PER_CELL,
            resources={"metadata": {"path": folder}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
            coalesce_streams=True,
            record_timing=False,
        ).execute(env={variable: str(folder_of_the_log), **os.environ, **_ONE_THREAD, "MPLCONFIGDIR": no_matplotlibrc})
        if left := sorted(path.name for path in Path(folder).iterdir()):
            raise SystemExit(f"{name}: left files behind: {', '.join(left)}")
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                raise SystemExit(f"{name}: a cell warned: {output.text}")
            data = output.get("data", {})
            if other := set(data) - KEPT:
                raise SystemExit(f"{name}: store a table or a picture, not {', '.join(sorted(other))}")
            if "image/png" in data:
                data["image/png"] = _smaller(data["image/png"])


def _smaller(picture: str) -> str:
    """Return a picture with at most 256 colours, a third of its size, without what names the program that drew it."""
    from PIL import Image

    drawn = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    few, made = drawn.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE), io.BytesIO()
    few.save(made, "PNG", optimize=True)
    return base64.b64encode(made.getvalue()).decode()


if __name__ == "__main__":
    for one in sorted(NOTEBOOKS.glob("*.ipynb")):
        if one.name.startswith(tuple(sys.argv[1:]) or ""):
            print(one.name, flush=True)
            refresh(one)
