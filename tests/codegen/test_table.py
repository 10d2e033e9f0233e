"""The project's own table against the torch that is installed."""

from codegen.aten import Aten, resolve, torch_version
from codegen.functors import find_functors
from codegen.optable import load_table
from codegen.stubs import bind, declared_stubs, pointwise_ops


def test_the_table_fits_this_torch_and_the_functors():
    entries = load_table(torch_version=torch_version())
    assert len(resolve(entries, Aten.installed())) == len(entries)
    bind(entries, declared_stubs())
    pointwise_ops(entries, find_functors())


def test_headers_declare_hundreds_of_stubs():
    declared = declared_stubs()
    assert len(declared) > 400
    assert declared["round_decimals_stub"] == "ATen/native/UnaryOps.h"  # declared over two lines
    assert declared["add_stub"] == "ATen/native/BinaryOps.h"
