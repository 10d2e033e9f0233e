"""The classes that inductor asks torch.ocl for, by name, when it is first used."""

from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen  # noqa: F401

from torch_ocl import inductor

inductor.register()

from torch_ocl.inductor.call.cpp_wrapper import OclCppWrapper as CppWrapperCodegen  # noqa: E402, F401
from torch_ocl.inductor.call.wrapper import OclWrapper as PythonWrapperCodegen  # noqa: E402, F401
from torch_ocl.inductor.scheduling import OclScheduling as Scheduling  # noqa: E402, F401
