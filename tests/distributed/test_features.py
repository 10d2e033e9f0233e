"""The table of features names tests that are there and are run (docs/reference/distributed.md)."""

import ast
from pathlib import Path

import pytest
import yaml

from tests.distributed import upstream, upstream_known

HERE = Path(__file__).parent
FEATURES = yaml.safe_load((HERE / "features.yaml").read_text(encoding="utf-8"))
NAMED = [
    name for features in FEATURES.values() for feature in features for name in feature["tests"]
]


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_a_named_test_is_run(name):
    """It is a test, or a function that the file's tests use."""
    file, _, function = name.rpartition(".")
    tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert function.startswith("test_") or function in used


def test_every_feature_has_a_test():
    assert all(feature["tests"] for features in FEATURES.values() for feature in features)


def test_what_fails_of_upstreams_tests_still_does():
    """Those for CUDA that can't pass, beside one that does."""
    names = [*upstream_known.FAILS, "test_all_gather_v_cuda"]
    found = {"nccl": upstream.run("nccl", names)}
    assert len(found["nccl"]) == len(names) and not upstream.unexpected(found)
