"""Sanitizers' reports: one for each error, and whether code of the package is in it."""

import dataclasses
import re

#: Files that the build makes, as frames of a stack name them.
OURS = re.compile(
    r"libtorch_ocl\.so|/_C\.cpython|/_distributed\.cpython|/build_worker|/device_count|floor1_test"
    r"|csrc/|tests/opencl/floor1/"
)
ACCESS = re.compile(r"(?:read|write) of size \d+ at .* by ", re.I)
BEGINS = re.compile(r"^(?:=+\n)?(?:==\d+==ERROR|WARNING: ThreadSanitizer|\S+: runtime error)", re.M)


@dataclasses.dataclass(frozen=True)
class Report:
    """A report's text."""

    text: str

    @property
    def is_ours(self):
        """Whether the package's code did what is reported: the first frame of a stack that isn't of
        a sanitizer, the C library or the C++ library is the package's. A race is the package's
        where both accesses are: a driver's own atomics order those of its threads, unseen."""
        stacks = re.split(r"\n\s*\n", self.text)
        if "ThreadSanitizer: data race" in self.text:
            return all(_is_ours(stack) for stack in stacks if ACCESS.search(stack))
        at_once = re.match(r"\S*csrc/\S+: runtime error", self.text)
        return bool(at_once) or any(map(_is_ours, stacks))


def _is_ours(stack):
    frames = re.findall(r"^\s+#\d+ .*$", stack, re.M)
    own = [frame for frame in frames if not _is_library(frame)]
    return bool(own) and bool(OURS.search(own[0]))


def _is_library(frame):
    return re.search(
        r"lib(asan|tsan|ubsan|c|stdc\+\+|pthread)\.so|sanitizer|/include/c\+\+/", frame
    )


def read(folder):
    """The reports in the files of a folder, each once."""
    found = {}
    for file in sorted(folder.iterdir()):
        text = file.read_text(errors="replace")
        places = [match.start() for match in BEGINS.finditer(text)]
        for begin, end in zip(places, [*places[1:], len(text)], strict=False):
            report = Report(text[begin:end].strip())
            found.setdefault(_without_addresses(report.text), report)
    return list(found.values())


def _without_addresses(text):
    return re.sub(r"0x[0-9a-f]+|==\d+==|pid=\d+|tid=\d+|T\d+|\d+ bytes?", "", text)
