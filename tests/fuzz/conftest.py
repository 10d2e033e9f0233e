"""How many cases the fuzzer tries: few and always the same, or with FUZZ_EXAMPLES many new ones."""

import os

import hypothesis

from tests.fuzz import tensors

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))

hypothesis.settings.register_profile(
    "ocl",
    max_examples=EXAMPLES or 60,
    derandomize=not EXAMPLES,  # a test run is the same every time
    database=None,
    deadline=None,  # the first use of a kernel compiles it
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("ocl")


def pytest_terminal_summary(terminalreporter):
    if tensors.cases:
        terminalreporter.write_line(f"fuzzer: {sum(tensors.cases.values())} cases {tensors.cases}")
