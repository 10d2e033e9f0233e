"""Programs that say "cuda" run on `ocl`: TORCH_OCL_AS_CUDA and torch_ocl.cuda_to_ocl()."""
