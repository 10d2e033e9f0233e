"""Where CL/cl.h lies. tools/build_paths.py uses it before there is a torch_ocl to import."""

import glob
import os
import sys
import sysconfig

# Where tools/fetch_headers.sh puts what the machine lacks.
FETCHED = os.path.join(sys.prefix, "headers", "usr", "include")


def opencl_include() -> str | None:
    """The folder to include <CL/cl.h> from: of NVIDIA's wheel, which torch_ocl depends on where
    there is one, else of the machine. None if there is none."""
    wheels = [
        folder
        for site in (sysconfig.get_path("purelib"), *sys.path)
        for folder in sorted(glob.glob(os.path.join(site, "nvidia", "*", "include")))
    ]
    for folder in (*wheels, "/usr/include", "/usr/local/include", FETCHED):
        if os.path.exists(os.path.join(folder, "CL", "cl.h")):
            return folder
    return None
