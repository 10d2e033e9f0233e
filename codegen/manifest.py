"""ops_manifest.json: what is registered and what runs behind it, for tests and docs."""

from __future__ import annotations

import json

from codegen.aten import Registered


def manifest(registered: list[Registered]) -> str:
    """JSON: the full name of every registered function -> {group, kernel, kind, section, stubs}.

    group: the table's entry; kernel: the C++ kernel registered; kind: pointwise, kernel, impl or
    native; stubs (pointwise and kernel only): stub -> functor or function of ocl::native.
    """
    functions = {}
    for r in registered:
        if r.kernel is None:
            continue
        for function in r.functions:
            functions[str(function.func.name)] = {
                "group": r.entry.name,
                "kernel": r.cpp_name,
                "kind": r.entry.kind,
                "section": r.entry.section,
                **({"stubs": dict(r.entry.stubs)} if r.entry.stubs else {}),
            }
    return json.dumps(functions, indent=1, sort_keys=True) + "\n"
