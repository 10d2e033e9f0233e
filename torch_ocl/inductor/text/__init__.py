"""OpenCL C: values and effects, indices, accumulators, and the program around them."""
