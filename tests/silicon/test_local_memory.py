"""Local arguments over Mesa's zink, whose kernels keep the amount of local memory that their first
launch had (mesa/local_argument.c): together they take all that the device has."""

import dataclasses

from tests.fresh import run_script
from tests.silicon import capture, driver, profiles

ZINK = {"name": "zink Vulkan 1.4(NVIDIA H200 (NVIDIA_PROPRIETARY))", "local_memory": 49152}
#: Kernels with up to four local arguments, at sizes that rise and fall; the last arguments of some
#: come behind those that a kernel's memos have room for.
LAUNCHES = """
import torch
for n in (3, 20, 3, 60):
    x = torch.zeros(2, n, n, device="ocl")
    for function in (torch.linalg.svdvals, torch.linalg.eigvalsh):
        try:
            function(x)
        except RuntimeError as error:  # nothing is computed
            print(error)
torch.ocl.synchronize()
"""


def test_all_launches_of_a_kernel_have_the_same_amount(tmp_path):
    known = profiles.load("asahi")
    profile = dataclasses.replace(known, name="zink", fields={**known.fields, **ZINK})
    captured = tmp_path / "captured"
    environment = driver.environment(profile, tmp_path, captured)
    done = run_script(LAUNCHES, environment=environment)
    assert done.returncode == 0, done.stderr
    launches = [launch for program in capture.read(captured) for launch in program.launches]
    with_some = [launch for launch in launches if launch.local_memory > 0]
    assert "bidiagonalise" in {launch.kernel for launch in with_some}
    assert {launch.local_memory for launch in with_some} == {ZINK["local_memory"]}
