"""The op matrix's words on an op, and the file it keeps them in."""

import pytest

from tests.coverage import __main__ as command
from tests.coverage import results


def outcome(**parts):
    return {"looked_at": {}, "failed": {}, "fallbacks": {}, "host_staged": {}, **parts}


def test_native_only_without_anything_on_the_host():
    looked_at = {"forward": 2, "out": 0, "backward": 1}
    assert results.verdict(outcome(looked_at=looked_at)) == ("native", "fb")
    staged = outcome(looked_at=looked_at, host_staged={"_linalg_svd": 3})
    assert results.verdict(staged) == ("host: _linalg_svd", "fb")
    fallback = outcome(looked_at=looked_at, fallbacks={"aten::foo": 1}, host_staged={"b": 1})
    assert results.verdict(fallback)[0] == "gap: ran on the CPU: aten::foo"


def test_one_failed_check_makes_a_gap():
    failed = outcome(looked_at={"forward": 2}, failed={"out": "AssertionError: a|b\n  c"})
    assert results.verdict(failed) == ("gap: out: AssertionError: a/b c", "f")
    crashed = {"passed": False, "failed": {"run": "crash (exit code -11)"}}
    assert results.verdict(crashed) == ("gap: run: crash (exit code -11)", "")
    assert results.verdict(outcome())[0] == "gap: no sample was checked"


def test_file_keeps_what_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PATH", tmp_path / "results.json")
    assert results.load() == {}
    ops = {"add": {"float32": ["native", "fn"]}, "eig": {"float32": ["host: linalg_eig", "f"]}}
    everything = {"a runtime": {"about": {"device": "x"}, "ops": ops}}
    results.save(everything)
    assert results.load() == everything
    assert results.counts(ops, "float32") == {"native": 1, "host": 1, "gap": 0}
    assert results.counts(ops, "float64") == {"native": 0, "host": 0, "gap": 0}


@pytest.mark.parametrize(
    "arguments, partial",
    [
        ([], False),
        (["--only", "new", "--jobs", "1"], False),
        (["--ops", "^add$"], True),
        (["--dtypes", "float16"], True),
        (["--samples", "1"], True),
    ],
)
def test_a_partial_run_is_known_as_such(arguments, partial):
    assert command.is_partial(command.parse(arguments)) == partial


@pytest.mark.parametrize("named", [False, True])
def test_a_partial_run_keeps_its_results_only_where_told(named, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PATH", tmp_path / "tracked.json")
    path = tmp_path / "named.json"
    arguments = ["coverage", "--ops", "^no such op$"] + ["--results", str(path)] * named
    monkeypatch.setattr("sys.argv", arguments)
    command.main()
    assert not (tmp_path / "tracked.json").exists()
    assert path.exists() == named
