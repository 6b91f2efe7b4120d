"""Whether this tree is the release that its tag says: `make ready TAG=v0.1.0`."""

import re
import runpy
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Return what does not fit the tag: the version, the changelog, the citation."""
    version = runpy.run_path(str(root / "src" / "treeward" / "core" / "version.py"))["__version__"]
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    heading = re.search(r"^## \[(.+?)\] - (.+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    dated = heading is not None and re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]) is not None
    found = {
        f"the tag must be v{version}, got {tag}": tag != f"v{version}",
        f"CITATION.cff: version must be {version}, got {cited.get('version')}": str(cited.get("version")) != version,
        f"CHANGELOG.md: the first heading must be [{version}]": heading is None or heading[1] != version,
        "CHANGELOG.md: the first heading must have a date": not dated,
        "CITATION.cff: date-released must be the date in CHANGELOG.md":
            heading is None or str(cited.get("date-released")) != heading[2],
    }  # fmt: skip
    return [what for what, wrong in found.items() if wrong]


if __name__ == "__main__":
    wrong = problems(sys.argv[1] if len(sys.argv) > 1 else "")
    print("\n".join(wrong) or f"{sys.argv[1]} is ready")
    sys.exit(bool(wrong))
