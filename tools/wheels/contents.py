"""problems_of() looks at the files of a wheel: its size, and what only developers need."""

import subprocess
import tempfile
import zipfile
from pathlib import Path

LARGEST = 12_000_000
# Headers and a script of CMake are for extensions in C++.
FOR_EXTENSIONS = ("torch_ocl/include/", "torch_ocl/share/cmake/")
SOURCES = {".cpp", ".c", ".cc", ".cl", ".clh", ".h", ".cmake", ".yaml", ".o", ".a", ".pyc"}
FOLDERS = {"tests", "csrc", "codegen", "kernels", "docs", "examples", "benchmarks", "build"}
# Sections of a library that running it needs nothing of.
DEBUGGING = (".debug_", ".symtab")


def problems_of(wheel: Path) -> list[str]:
    found = []
    if (size := wheel.stat().st_size) > LARGEST:
        found.append(f"it has {size / 1e6:.1f} MB, and may have {LARGEST / 1e6:.0f}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for entry in archive.infolist():
            path = Path(entry.filename)
            if path.suffix in SOURCES and not entry.filename.startswith(FOR_EXTENSIONS):
                found.append(f"{path} is a source")
            if path.parts[0] in FOLDERS:
                found.append(f"{path} is not of the package")
            with archive.open(entry) as file:
                is_binary = file.read(4) == b"\x7fELF"
            if is_binary:
                found += _debugging_sections(Path(archive.extract(entry, folder)), path)
    return found


def _debugging_sections(library: Path, name: Path) -> list[str]:
    command = ["readelf", "-SW", str(library)]
    sections = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [f"{name} has {part}" for part in DEBUGGING if part in sections]
