from setuptools import setup

from torch_ocl.utils.cpp_extension import BuildExtension, OclExtension

setup(
    name="ocl-swiglu",
    version="0.1.0",
    packages=["ocl_swiglu"],
    ext_modules=[OclExtension("ocl_swiglu._C", ["csrc/swiglu.cpp"], kernels="kernels")],
    cmdclass={"build_ext": BuildExtension},
)
