"""Which of the sanitizers' reports are about the package."""

import pytest

from tests.sanitize import reports

OURS = "    #0 ocl::Queue::settle() /work/csrc/opencl/queue.cpp:65 (libtorch_ocl.so+0x9ad02)\n"
LIBRARY = "    #0 memcpy sanitizer_common_interceptors.inc:827 (libtsan.so.2+0x5dda6)\n"
FOREIGN = "    #1 run(int) <null> (libintelocl.so+0x1c903c8)\n"
RACE = """WARNING: ThreadSanitizer: data race (pid=7)
  Read of size 8 at 0x7bcc by thread T3:
{}
  Previous write of size 4 at 0x7bcc by main thread:
{}
  Location is heap block of size 4 at 0x7bcc allocated by main thread:
{}
"""


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        (RACE.format(LIBRARY + OURS, OURS, FOREIGN), True),
        (RACE.format(LIBRARY + FOREIGN, OURS, OURS), False),
        (
            f"==7==ERROR: AddressSanitizer: use-after-free\n{LIBRARY}{FOREIGN}\nfreed:\n{OURS}",
            True,
        ),
        (f"==7==ERROR: AddressSanitizer: heap-use-after-free\n{FOREIGN}\nfreed:\n{FOREIGN}", False),
        ("/work/csrc/ops/Sort.cpp:7:5: runtime error: shift exponent 64 is too large\n", True),
        ("/usr/include/c++/12/bits/x.h:7: runtime error: null pointer\n" + FOREIGN, False),
    ],
)
def test_a_report_s_owner(tmp_path, text, is_ours):
    (tmp_path / "address.7").write_text(text)
    (tmp_path / "address.8").write_text(text)  # another process says the same
    (report,) = reports.read(tmp_path)
    assert report.is_ours == is_ours


def test_a_file_without_reports(tmp_path):
    (tmp_path / "thread.7").write_text("ThreadSanitizer: reported 27 warnings\n")
    assert reports.read(tmp_path) == []
