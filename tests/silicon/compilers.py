"""The GPUs' own compilers, and what they say of a kernel: registers, spills, memory, occupancy."""

import dataclasses
import pathlib
import re
import subprocess
import tempfile

from tests import programs
from tests.silicon import packages

#: Seconds for a program.
TIMEOUT = 300


@dataclasses.dataclass
class Kernel:
    """A compiler's report on a kernel. Bytes are a work-item's, or a work-group's local ones."""

    name: str
    registers: int = 0
    spilled: int = 0  # registers (AMD) or bytes (Intel)
    private: int = 0  # bytes; AMD's compiler counts spilled registers among them
    local: int = 0
    waves: int = 0  # that fit on a SIMD (AMD)
    simd: int = 0  # work-items in a thread (Intel)
    instructions: int = 0
    loop: int = 0  # instructions of the innermost loop with the most arithmetic (AMD)
    loop_math: int = 0  # those of them that multiply and add

    def problems(self, sizes):
        """Reasons for which it is slow: "spills", "private", "occupancy". `sizes`: a SIMD32 or
        SIMD16 that the device has."""
        few = self.waves and self.waves < 4 or self.simd == 8 and max(sizes, default=0) > 8
        # Spilled registers lie in private memory, too.
        private = 0 if self.spilled else self.private
        found = {"spills": self.spilled, "private": private, "occupancy": few}
        return [name for name, amount in found.items() if amount]


@dataclasses.dataclass
class Compiled:
    """A program's outcome."""

    error: str = ""
    warnings: tuple = ()
    kernels: tuple = ()


class Compiler:
    """A vendor's compiler for a profile's device; `command` is None where it isn't there."""

    def __init__(self, folder, profile):
        self.folder, self.profile = folder, profile

    def compile(self, program):
        """The outcome of a captured program."""
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder)
            try:
                return self._compile(program, made)
            except subprocess.TimeoutExpired:
                return Compiled(error=f"it took more than {TIMEOUT} s")

    def _run(self, command, folder):
        return programs.run(command, TIMEOUT, cwd=folder)


def first_error(log):
    """The line of a log that says what went wrong."""
    lines = [line for line in log.splitlines() if re.search(r"\berror\b|LLVM ERROR|Assert", line)]
    return lines[0].strip() if lines else (log.strip().splitlines() or ["it crashed"])[-1]


def warnings_of(log):
    """Warnings without their places: file and text."""
    found = re.findall(r"^(\S+?):\d+:\d+: warning: (.*)$", log, re.MULTILINE)
    return tuple(sorted({f"{file}: {text}" for file, text in found}))


class Clang(Compiler):
    """Options that clang's drivers share."""

    def __init__(self, folder, profile):
        super().__init__(folder, profile)
        self.command = packages.command(folder, "clang-[0-9]*")
        self.resources = next(iter(folder.glob("root/usr/lib/llvm-*/lib/clang/*")), None)

    def _clang(self, program, *options):
        return [
            *self.command,
            *("-x", "cl", "-Xclang", "-finclude-default-header", "-resource-dir", self.resources),
            *program.options,
            *options,
            program.path,
        ]


class Amd(Clang):
    """ROCm's OpenCL compiler is clang with these libraries."""

    NUMBERS = {
        "VGPRs": "registers",
        "VGPRs Spill": "spilled",
        "ScratchSize [bytes/lane]": "private",
        "LDS Size [bytes/block]": "local",
        "Occupancy [waves/SIMD]": "waves",
    }

    def _compile(self, program, folder):
        listing = folder / "out.s"
        libraries = self.resources / "amdgcn" / "bitcode"
        command = self._clang(
            program,
            *("-target", "amdgcn-amd-amdhsa", f"-mcpu={self.profile.target}", "-O3", "-S"),
            *(f"--rocm-device-lib-path={libraries}", "-Rpass-analysis=kernel-resource-usage"),
            *("-o", listing),
        )
        done = self._run(command, folder)
        if done.returncode != 0:
            return Compiled(error=first_error(done.stdout))
        kernels = []
        for what, value in re.findall(r"remark:\s+(.+?): (\S+) \[-Rpass", done.stdout):
            if what == "Function Name":
                kernels.append(Kernel(value))
            elif kernels and what in self.NUMBERS:
                setattr(kernels[-1], self.NUMBERS[what], int(value))
        functions = functions_of(listing.read_text())
        for kernel in kernels:
            lines = functions.get(kernel.name, [])
            kernel.instructions = sum(map(is_instruction, lines))
            kernel.loop, kernel.loop_math = busiest_loop(lines)
        return Compiled("", warnings_of(done.stdout), tuple(kernels))


#: AMD's instructions that multiply and add: of vectors, packed ones, dot products, of matrices.
MATH = re.compile(r"\tv_(pk_)?(fma|fmac|mac|mad|dot|dual_fmac|dual_fma|mfma|wmma|smfmac)")


def is_instruction(line):
    """Whether a line of a listing is one, and not a label or a directive."""
    return re.match(r"\t[a-z]\w+", line) is not None


def functions_of(listing):
    """The lines of each function of an assembler listing."""
    functions, lines = {}, []
    for line in listing.splitlines():
        if label := re.match(r"([A-Za-z_]\w*):", line):
            lines = functions.setdefault(label[1], [])
        else:
            lines.append(line)
    return functions


def busiest_loop(lines):
    """(instructions, those that multiply and add) of the loop that has most of the latter, among
    loops with no other one inside."""
    labels, loops = {}, []
    for at, line in enumerate(lines):
        if label := re.match(r"(\.\w+):", line):
            labels[label[1]] = at
        jump = re.match(r"\ts_c?branch\w*\s+(\.\w+)", line)
        if jump and jump[1] in labels:
            loops.append((labels[jump[1]], at))
    inner = [
        (first, last)
        for first, last in loops
        if not any(
            first <= other[0] and other[1] <= last and other != (first, last) for other in loops
        )
    ]
    found = [
        (
            sum(map(is_instruction, lines[first : last + 1])),
            sum(MATH.match(line) is not None for line in lines[first : last + 1]),
        )
        for first, last in inner
    ]
    return max(found, key=lambda loop: (loop[1], loop[0]), default=(0, 0))


class Intel(Compiler):
    """Intel's offline compiler, whose binaries say in YAML what a kernel needs."""

    PATTERN = "ocloc-2[6-9]*"

    def __init__(self, folder, profile):
        super().__init__(folder, profile)
        self.command = packages.command(folder, self.PATTERN)

    def _compile(self, program, folder):
        device = ("-device", self.profile.target, "-out_dir", folder, "-output", "out")
        options = ("-options", " ".join(program.options))
        command = [*self.command, "compile", "-file", program.path, *device, *options]
        done = self._run(command, folder)
        binary = next(iter(folder.glob("*.bin")), None)
        if done.returncode != 0 or binary is None:
            return Compiled(error=first_error(done.stdout))
        notes = folder / "notes.yaml"
        take = ["-I", "elf64-little", "-O", "binary", "--only-section=.ze_info"]
        flags = ["--set-section-flags", ".ze_info=alloc", binary, notes]
        self._run(["objcopy", *take, *flags], folder)
        return Compiled("", warnings_of(done.stdout), tuple(self._kernels(notes.read_text())))

    @staticmethod
    def _kernels(notes):
        """The file is large, and its kernels are lists of plain fields: lines are enough."""
        names = {"grf_count": "registers", "spill_size": "spilled", "private_size": "private"}
        names |= {"slm_size": "local", "simd_size": "simd"}
        part = kernel = None
        for line in notes.splitlines():
            if found := re.match(r"(\w+):", line):
                part = found[1]
            if part != "kernels":
                continue
            if found := re.match(r"  - name:\s+(\S+)", line):
                if kernel:
                    yield kernel
                kernel = Kernel(found[1])
            elif kernel and (found := re.match(r"\s+(\w+):\s+(\d+)", line)) and found[1] in names:
                setattr(kernel, names[found[1]], int(found[2]))
        if kernel:
            yield kernel


class IntelLegacy(Intel):
    """The last compiler for Gen8 to Gen11."""

    PATTERN = "ocloc-24*"


class FrontEnd(Clang):
    """Where the vendor's compiler can't be had: is it OpenCL C of such a device, and SPIR-V?"""

    def __init__(self, folder, profile):
        super().__init__(folder, profile)
        self.translator = packages.command(folder, "llvm-spirv*")
        self.validator = packages.command(folder, "spirv-val")
        if self.translator is None or self.validator is None:
            self.command = None

    def _compile(self, program, folder):
        known = ["-all", *(f"+{name}" for name in self.profile.extensions + self.profile.features)]
        bitcode, binary = folder / "out.bc", folder / "out.spv"
        command = self._clang(
            program,
            *("-target", "spir64", "-O0", "-Xclang", "-disable-O0-optnone", "-emit-llvm", "-c"),
            *(
                "-Wall",
                "-Wno-unused",
                "-Wno-unknown-pragmas",
                "-Xclang",
                "-cl-ext=" + ",".join(known),
            ),
            *("-o", bitcode),
        )
        done = self._run(command, folder)
        if done.returncode != 0:
            return Compiled(error=first_error(done.stdout))
        warnings = warnings_of(done.stdout)
        form = ["--spirv-max-version=1.2", "--spirv-ext=+SPV_KHR_no_integer_wrap_decoration"]
        for step in (
            [*self.translator, *form, bitcode, "-o", binary],
            [*self.validator, "--target-env", "opencl2.2", binary],
        ):
            done = self._run(step, folder)
            if done.returncode != 0:
                return Compiled(error=first_error(done.stdout), warnings=warnings)
        return Compiled(warnings=warnings)


COMPILERS = {"amd": Amd, "intel": Intel, "intel-legacy": IntelLegacy, "front-end": FrontEnd}


def compiler_of(folder, profile):
    """The compiler of a profile's device, from the packages in a folder; None without it."""
    found = COMPILERS[profile.compiler](folder, profile)
    return found if found.command else None
