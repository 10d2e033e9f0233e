"""Programs that the package would run on other vendors' GPUs: captured from devices that aren't
there, and a sample of it compiled by their compilers, where `make silicon` has fetched them."""

import os
import pathlib

import pytest

from tests.silicon import capture, compilers, entries, findings, profiles, results, sample, table
from tests.silicon.__main__ import PAGE

#: Where `make silicon` keeps the compilers.
TOOLS = pathlib.Path(os.environ.get("SILICON_TOOLS", "build/silicon/tools")).resolve()
#: Devices of four kinds, and programs of each; `make silicon ARGS=--sample` has each day's.
SAMPLE = sample.devices(0)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """The programs of samples, by device: each runs once."""
    folder, known = tmp_path_factory.mktemp("silicon"), {}

    def programs_of(name):
        if name not in known:
            place, _ = capture.run(profiles.load(name), ["samples"], folder)
            known[name] = capture.read(place)
        return known[name]

    return programs_of


@pytest.mark.parametrize("name", profiles.names())
def test_profiles_say_what_devices_say(name):
    profile = profiles.load(name)
    assert profile.fields["sources"], "where its answers were published"
    assert profile.compiler in compilers.COMPILERS
    answers = dict(line.split() for line in profile.answers().splitlines())
    assert bytes.fromhex(answers["102b"]) == profile.fields["name"].encode() + b"\0"
    assert len(answers["1005"]) == 3 * 16  # the largest work-group in three dimensions
    features = bytes.fromhex(answers.get("106f", ""))
    names = {
        features[at + 4 : at + 68].rstrip(b"\0").decode() for at in range(0, len(features), 68)
    }
    assert names == set(profile.features)


def test_programs_and_launches_are_captured(captured):
    programs = captured("mali-g610")
    files = {program.file for program in programs}
    assert {"gemm/tiled.cl", "conv/tiled.cl", "attention/forward_local.cl"} <= files
    product = next(program for program in programs if program.file == "gemm/tiled.cl")
    assert product.launched == {"gemm_tiled"} and "kernel" in product.text
    assert all(size > 0 for launch in product.launches for size in launch.global_size)
    # The device has no double, and all programs know.
    assert not any("-DOCL_HAS_FP64=1" in program.options for program in programs)


def test_a_sample_has_all_files_before_it_has_one_twice(captured):
    programs = captured("mali-g610")
    files = {program.file for program in programs}
    chosen = capture.sample(programs, len(files))
    assert {program.file for program in chosen} == files
    assert len(capture.sample(programs, len(files) + 7)) == len(files) + 7


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_compiles_without_findings_that_have_no_reason(captured, name, tmp_path):
    profile = profiles.load(name)
    compiler = compilers.compiler_of(TOOLS, profile)
    if compiler is None:
        pytest.skip("`make silicon` fetches the compilers")
    programs = capture.sample(captured(name), SAMPLE[name])
    known = results.Results(tmp_path / "results.jsonl")
    known.compile(compiler, programs, jobs=2)
    device = findings.Device(profile, programs, known, len(programs))
    assert not findings.unexplained(device.findings(), whole=False)


def test_findings_need_reasons_and_reasons_findings(tmp_path, monkeypatch):
    profile = profiles.load("gfx1030")
    program = capture.Program(tmp_path / "1.cl", (capture.Launch("slow", (0,) * 3, 0, (1,) * 3),))
    program.path.write_text('#line 1 "gemm/tiled.cl"\n')
    known = results.Results(tmp_path / "results.jsonl")
    slow = compilers.Kernel("slow", registers=256, spilled=7, private=28, waves=4)
    idle = compilers.Kernel("idle", spilled=9, waves=4)  # it spills, and doesn't run
    known.known["1"] = compilers.Compiled("", ("a.clh: odd",), (slow, idle))
    device = findings.Device(profile, [program], known, 1)
    reasons = tmp_path / "known.yaml"
    monkeypatch.setattr(findings, "KNOWN", reasons)
    reasons.write_text("{}")
    wrong = findings.unexplained(device.findings(), whole=True)
    assert wrong == ["gfx1030: a.clh: warns: odd", "gfx1030: gemm/tiled.cl: spills: slow"]
    reason = "{devices: ['gfx*'], file: '%s', reason: because}"
    reasons.write_text(f"warns: [{reason % 'a.clh'}]\nspills: [{reason % 'gemm/*'}]\n")
    assert not findings.unexplained(device.findings(), whole=True)
    reasons.write_text(f"{reasons.read_text()}private: [{reason % 'b.cl'}]\n")
    assert not findings.unexplained(device.findings(), whole=False)
    assert "nothing private any more" in findings.unexplained(device.findings(), whole=True)[0]


def test_a_device_s_entry_has_its_row_and_its_findings(tmp_path):
    profile = profiles.load("gfx1030")
    launch = capture.Launch("gemm_tiled", (0,) * 3, 0, (1,) * 3)
    program = capture.Program(tmp_path / "1.cl", (launch,))
    program.path.write_text('#line 1 "gemm/tiled.cl"\n')
    known = results.Results(tmp_path / "results.jsonl")
    kernel = compilers.Kernel(
        "gemm_tiled", registers=256, spilled=7, waves=4, local=2048, loop=90, loop_math=64
    )
    known.known["1"] = compilers.Compiled("", (), (kernel,))
    entry = entries.entry_of(findings.Device(profile, [program], known, 2))
    assert not entries.is_whole(entry) and entry["findings"] == [
        ["spills", "gemm/tiled.cl", "gemm_tiled", 1]
    ]
    page = table.page({"gfx1030": entry})
    (row,) = (line for line in page.splitlines() if line.startswith("| gfx1030: "))
    assert "| 1 of 2 | 0 | 0 | 1 | 1 | 0 | 0 | 256 | 2 KiB |" in row
    assert "| gfx1030 | 64 of 90 |" in page and "Nothing was compiled yet for adreno-750" in page


def test_the_page_is_that_of_what_is_known():
    assert table.page(entries.load()) == PAGE.read_text()


def test_a_year_s_samples_have_all_devices():
    days = [sample.devices(day) for day in range(365)]
    assert {name for day in days for name in day} == set(profiles.names())
    assert all(sum(day.values()) == 100 and len(day) == 4 for day in days)


def test_the_loop_with_most_arithmetic_is_found():
    lines = """.LBB0_1:
\tv_mov_b32 v0, v1
.LBB0_2:
\tds_read_b128 v[0:3], v4
\tv_fma_f32 v5, v0, v1, v5
\tv_pk_fma_f16 v6, v0, v1, v6
\ts_cbranch_scc1 .LBB0_2
.LBB0_3:
\tv_add_f32 v5, v5, v6
\ts_cbranch_scc0 .LBB0_3
\ts_cbranch_vccnz .LBB0_1
\ts_cbranch_execz .LBB0_9
.LBB0_9:
\ts_endpgm"""
    assert compilers.busiest_loop(lines.split("\n")) == (4, 2)
    found = compilers.functions_of(f"first:\n{lines}\nsecond:\n\ts_endpgm")
    assert sum(map(compilers.is_instruction, found["first"])) == 10
    assert compilers.busiest_loop(found["second"]) == (0, 0)
