#!/usr/bin/env python3
"""Generates registrations, stub bindings, kernel declarations and the manifest from the op table.

  python codegen/generate.py --out build/gen [--list-outputs]

Files that would not change are not written, so that an edit of one op rebuilds one shard.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from codegen.aten import OURS, Aten, Registered, resolve, torch_version  # noqa: E402
from codegen.bindings import kernel_source, pointwise_source  # noqa: E402
from codegen.errors import TableError  # noqa: E402
from codegen.foreach import foreach_source  # noqa: E402
from codegen.functors import FUNCTOR_DIR, Functor, find_functors  # noqa: E402
from codegen.fused import fused_source  # noqa: E402
from codegen.manifest import manifest  # noqa: E402
from codegen.optable import TABLE_DIR, Entry, load_table  # noqa: E402
from codegen.registration import (  # noqa: E402
    BANNER,
    backend_index,
    own_header,
    registration_source,
    shard_of,
    signature,
)
from codegen.shims import shim_names, shims  # noqa: E402
from codegen.sparse import sparse_source  # noqa: E402
from codegen.stubs import bind, declared_stubs, pointwise_ops  # noqa: E402

REGISTRATION_SHARDS = 6
POINTWISE_SHARDS = 2


def output_names(registered: list[Registered]) -> list[str]:
    """The paths of all generated files, relative to the output directory; needs no functors."""
    return [
        *(f"PointwiseStubs_{shard}.cpp" for shard in range(POINTWISE_SHARDS)),
        *(f"RegisterPrivateUse1_{shard}.cpp" for shard in range(REGISTRATION_SHARDS)),
        "ForeachFunctions.cpp",
        "FusedOptimizers.cpp",
        "KernelStubs.cpp",
        "RegisterSparse.cpp",
        "ops_manifest.json",
        *shim_names(),
        *(f"ops/{root}.h" for root in _own_by_root(registered)),
    ]


def outputs(
    entries: list[Entry], registered: list[Registered], functors: dict[str, Functor]
) -> dict[str, str]:
    """Every generated file: path relative to the output directory -> text.

    Throws TableError for stubs or functors that are missing or bound twice.
    """
    bindings = bind(entries, declared_stubs())
    ops = pointwise_ops(entries, functors)
    files = {"ops_manifest.json": manifest(registered)}
    files["KernelStubs.cpp"] = kernel_source([b for b in bindings if b.kind == "kernel"])
    each = [r for r in registered if r.entry.each]
    files["ForeachFunctions.cpp"] = foreach_source(each, Aten.installed(), backend_index(each))
    fused = [r for r in registered if r.entry.fused]
    files["FusedOptimizers.cpp"] = fused_source(fused, backend_index(fused))
    files["RegisterSparse.cpp"] = sparse_source(Aten.installed())
    files |= shims(Aten.installed())
    for shard in range(POINTWISE_SHARDS):
        part = [
            b
            for b in bindings
            if b.kind == "pointwise" and shard_of(b.target, POINTWISE_SHARDS) == shard
        ]
        files[f"PointwiseStubs_{shard}.cpp"] = pointwise_source(part, ops)
    for shard in range(REGISTRATION_SHARDS):
        part = [r for r in registered if shard_of(signature(r), REGISTRATION_SHARDS) == shard]
        files[f"RegisterPrivateUse1_{shard}.cpp"] = registration_source(part)
    for root, own in _own_by_root(registered).items():
        files[f"ops/{root}.h"] = own_header(own)
    return files


def _own_by_root(registered: list[Registered]) -> dict[str, list[Registered]]:
    by_root = collections.defaultdict(list)
    for r in registered:
        if r.kernel is not None and r.kernel.cpp_namespace == OURS:
            by_root[r.root].append(r)
    return dict(sorted(by_root.items()))


def write(files: dict[str, str], directory: pathlib.Path) -> list[str]:
    """Writes what differs and removes headers of entries that are gone; returns what it touched."""
    touched = []
    for name, text in files.items():
        path = directory / name
        if path.exists() and path.read_text() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        touched.append(name)
    for path in sorted((directory / "ops").glob("*.h")):
        name = f"ops/{path.name}"
        if name not in files and path.read_text().startswith(BANNER):
            path.unlink()
            touched.append(name)
    return touched


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="output directory")
    parser.add_argument("--table", type=pathlib.Path, default=TABLE_DIR, help="of *.yaml")
    parser.add_argument("--functors", type=pathlib.Path, default=FUNCTOR_DIR, help="of *.clh")
    parser.add_argument(
        "--list-outputs", action="store_true", help="print the generated paths, write nothing"
    )
    options = parser.parse_args(arguments)
    try:
        entries = load_table(options.table, torch_version())
        registered = resolve(entries, Aten.installed())
        if options.list_outputs:
            print("\n".join(str(options.out / name) for name in output_names(registered)))
        else:
            write(outputs(entries, registered, find_functors(options.functors)), options.out)
    except TableError as error:
        print(f"the op table has errors:\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
