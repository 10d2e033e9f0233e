"""Writes the pages that `pip install torch-ocl --extra-index-url URL` reads (PEP 503), for a folder
of wheels, which lie beside them.

    python tools/wheels/write_index.py dist site
"""

import hashlib
import html
import shutil
import sys
import urllib.parse
from pathlib import Path

PAGE = "<!DOCTYPE html>\n<html><head><title>{title}</title></head><body>\n{links}\n</body></html>\n"
PROJECT = "torch-ocl"


def link(wheel: Path) -> str:
    """The address has the checksum, by which pip knows a file that is damaged."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    address = f"{urllib.parse.quote(wheel.name)}#sha256={digest}"
    return f'<a href="{address}" data-requires-python="&gt;=3.10">{html.escape(wheel.name)}</a><br>'


def write(wheels: Path, site: Path) -> None:
    folder = site / PROJECT
    folder.mkdir(parents=True, exist_ok=True)
    links = []
    for wheel in sorted(wheels.glob("torch_ocl-*.whl")):
        shutil.copy(wheel, folder)
        links.append(link(wheel))
    page = PAGE.format(title=PROJECT, links="\n".join(links))
    (folder / "index.html").write_text(page, encoding="utf-8")
    projects = f'<a href="{PROJECT}/">{PROJECT}</a>'
    page = PAGE.format(title="Wheels of torch_ocl", links=projects)
    (site / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
