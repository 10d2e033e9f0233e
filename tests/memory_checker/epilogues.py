"""A text in front of the kernels of products and convolutions: as torch.compile writes them, and
that of kernels/conv/relu.clh."""

import os

import torch
from family import family

from torch_ocl import _C
from torch_ocl.inductor import device as devices

# ReLU of the sum with a column's number, and that sum's square.
FUNCTION = """
static inline void {name}(const ulong z, const ulong row, const ulong column, const {type} value
                          EPILOGUE_SIGNATURE) {{
  const ulong at = z * height * width + row * width + column;
  const {type} sum = value + {load}(added + column);
  {store}(fmax(sum, ({type})(0)), result + at);
  {store}(sum * sum, squares + at);
}}
"""
TEXT = """
#define HAS_EPILOGUE
#define EPILOGUE_LANES {lanes}
#define EPILOGUE_SIGNATURE , global const float* added, global float* result, \\
    global float* squares, const long height, const long width
#define EPILOGUE_PARAMETERS , global const float* added_base, const ulong added_offset, \\
    global float* result_base, const ulong result_offset, global float* squares_base, \\
    const ulong squares_offset, const long height, const long width
#define EPILOGUE_PASSED , added_base, added_offset, result_base, result_offset, squares_base, \\
    squares_offset, height, width
#define EPILOGUE_OPERANDS , added_base + added_offset / 4, result_base + result_offset / 4, \\
    squares_base + squares_offset / 4, height, width
#define TAKE_1(p) (*(p))
#define PUT_1(value, p) (*(p) = (value))
{more}
"""


def text(widest):
    """With a function for each width up to that, and the widest."""
    if os.environ["TORCH_OCL_TUNE_AS"] == "gpu":
        widest = 1
    more = [
        "#define epilogue_1 epilogue",
        FUNCTION.format(name="epilogue", type="float", load="TAKE_1", store="PUT_1"),
    ]
    for n in (2, 4, 8, 16):
        if n <= widest:
            more.append(f"#define TAKE_{n}(p) vload{n}(0, p)")
            more.append(f"#define PUT_{n}(value, p) vstore{n}(value, 0, p)")
            types = {"type": f"float{n}", "load": f"TAKE_{n}", "store": f"PUT_{n}"}
            more.append(FUNCTION.format(name=f"epilogue_{n}", **types))
    if widest > 1:
        more.append(f"#define epilogue_lanes epilogue_{widest}")
    return TEXT.format(lanes=widest if widest > 1 else 0, more="\n".join(more)), widest


def refuse(log):
    raise RuntimeError(log)


@family
def epilogues():
    """Epilogues of products, and of convolutions in kernels that have a place for one, or none."""
    keep = []
    # Two of the products' matrices, also with k split.
    for m, k, n in ((9, 7, 20), (2, 300, 17)):
        source, widest = text(devices.vector_bytes(0) // 4)
        fused = _C.fused_product(source, widest, 3, 2, 1.0, 1.0, refuse)
        a, b = torch.randn(2, m, k).to("ocl"), torch.randn(2, k, n).to("ocl")
        addends, result = torch.randn(n).to("ocl"), torch.empty(2, m, n, device="ocl")
        keep += [result, torch.empty_like(result)]
        fused(a, b, None, addends, *keep[-2:], m, n)
    # Images, channels, a side, channels of the result, a window's side, stride and groups.
    for n, channels, side, results, window, stride, groups in (
        (2, 3, 9, 20, 3, 2, 1),  # packed
        (1, 20, 4, 40, 3, 1, 1),  # im2col
        (1, 16, 17, 20, 3, 1, 1),  # winograd
        (1, 6, 9, 6, 3, 1, 6),  # depthwise
        (1, 17, 5, 17, 3, 1, 17),  # of small images
        (1, 4, 6, 2, 3, 1, 1),  # of few results
    ):
        for last in (False, True):
            form = torch.channels_last if last else torch.contiguous_format
            x = torch.randn(n, channels, side, side).to(memory_format=form).to("ocl")
            w = torch.randn(results, channels // groups, window, window).to("ocl")
            places = (side + 2 - window) // stride + 1
            rows, columns = n * places**2, results
            if not last:
                rows, columns = n * results, places**2
            source, widest = text(16)
            settings = ([stride] * 2, [1, 1], [1, 1], groups, last)
            fused = _C.fused_convolution(source, widest, 3, 2, *settings, refuse)
            addends, result = torch.randn(columns).to("ocl"), torch.empty(rows, columns).to("ocl")
            keep += [result, torch.empty_like(result)]
            fused(x, w, None, addends, *keep[-2:], rows, columns)
    # A volume, images of few results, windows of one element, groups of a channel apart, lines.
    for shape, weight, padding, dilation, groups in (
        ((1, 3, 4, 4, 5), (5, 3, 3, 3, 3), 1, 1, 1),
        ((2, 3, 5, 21), (3, 3, 3, 3), 1, 1, 1),
        ((2, 8, 5, 7), (9, 8, 1, 1), 0, 1, 1),
        ((1, 9, 7, 7), (9, 1, 3, 3), 2, 2, 9),
        ((2, 4, 19), (6, 2, 3), 1, 1, 2),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x, w = torch.randn(shape).to("ocl", dtype), torch.randn(weight).to("ocl", dtype)
            if len(shape) == 4 and groups > 1:
                x = x.to(memory_format=torch.channels_last)
            axes = len(shape) - 2
            arguments = [padding] * axes, [dilation] * axes, groups
            keep.append(torch.cudnn_convolution_relu(x, w, None, [1] * axes, *arguments))
            bias = torch.randn(weight[0]).to("ocl", dtype)
            keep.append(
                torch.cudnn_convolution_add_relu(x, w, keep[-1], 2, bias, [1] * axes, *arguments)
            )
    return keep
