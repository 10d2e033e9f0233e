"""Lists the usable OpenCL devices that this machine's own drivers offer; exits with 1 if there are
none.

`make` asks before it decides whether a driver has to come from pip. It runs before torch_ocl is
built. What is usable is what refusal_of() in csrc/opencl/quirks.cpp says.
"""

import ctypes
import glob
import importlib.util
import os
import pathlib
import sys
import sysconfig

CL_DEVICE_TYPE_ALL = 0xFFFFFFFF
CL_DEVICE_AVAILABLE = 0x1027
CL_DEVICE_COMPILER_AVAILABLE = 0x1028
CL_DEVICE_NAME = 0x102B
CL_DRIVER_VERSION = 0x102D
CL_DEVICE_LINKER_AVAILABLE = 0x103E
CL_PLATFORM_NAME = 0x0902
NEEDED = (CL_DEVICE_AVAILABLE, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_LINKER_AVAILABLE)


def name_unlisted_drivers() -> None:
    """As the package does it: drivers without an .icd file are named to the loader."""
    path = pathlib.Path(__file__).resolve().parents[1] / "torch_ocl" / "_loader.py"
    spec = importlib.util.spec_from_file_location("_loader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if drivers := module.find_unlisted_drivers():
        os.environ["OCL_ICD_FILENAMES"] = ":".join(drivers)


def open_loader() -> ctypes.CDLL | None:
    site = sysconfig.get_path("purelib")
    wheel = sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib", "libOpenCL.so.1")))
    for path in (*wheel, "libOpenCL.so.1"):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def handles(function, *arguments) -> list[ctypes.c_void_p]:
    """Calls clGetPlatformIDs or clGetDeviceIDs twice: for the count, then for the handles."""
    count = ctypes.c_uint(0)
    if function(*arguments, 0, None, ctypes.byref(count)) != 0 or count.value == 0:
        return []
    found = (ctypes.c_void_p * count.value)()
    if function(*arguments, count.value, found, None) != 0:
        return []
    return [ctypes.c_void_p(handle) for handle in found]


def text(function, handle: ctypes.c_void_p, what: int) -> str:
    buffer = ctypes.create_string_buffer(1024)
    function(handle, ctypes.c_uint(what), ctypes.c_size_t(len(buffer)), buffer, None)
    return buffer.value.decode(errors="replace").strip()


def says_no(function, handle: ctypes.c_void_p, what: int) -> bool:
    answer = ctypes.c_uint(1)
    size = ctypes.c_size_t(ctypes.sizeof(answer))
    function(handle, ctypes.c_uint(what), size, ctypes.byref(answer), None)
    return answer.value == 0


def is_usable(loader: ctypes.CDLL, device: ctypes.c_void_p, names: str) -> bool:
    version = text(loader.clGetDeviceInfo, device, CL_DRIVER_VERSION)
    if "rusticl" in names and version.split(".")[0].isdigit() and int(version.split(".")[0]) <= 22:
        return False
    return "FPGA Emulation" not in names and not any(
        says_no(loader.clGetDeviceInfo, device, what) for what in NEEDED
    )


def main() -> int:
    name_unlisted_drivers()
    loader = open_loader()
    if loader is None:
        return 1
    found = 0
    every_type = ctypes.c_uint64(CL_DEVICE_TYPE_ALL)
    for platform in handles(loader.clGetPlatformIDs):
        platform_name = text(loader.clGetPlatformInfo, platform, CL_PLATFORM_NAME)
        for device in handles(loader.clGetDeviceIDs, platform, every_type):
            name = text(loader.clGetDeviceInfo, device, CL_DEVICE_NAME)
            if is_usable(loader, device, f"{name} {platform_name}"):
                print(f"{name} ({platform_name})")
                found += 1
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
