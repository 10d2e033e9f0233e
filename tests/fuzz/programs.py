"""Random programs of views, dtype views, writes in place and partial writes, as Python text."""

import torch

DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES = ((4, 8), (16,), (2, 3, 8), (8, 8), (5, 16), (8, 1, 8), (40, 32))

VIEWS = (
    "{x}.view(torch.{dtype})",
    "{x}.view(torch.{dtype})",
    "{x}.reshape(-1)",
    "{x}.t()",
    "{x}.transpose(0, -1)",
    "{x}[1:]",
    "{x}[::2]",
    "{x}[..., {i}:]",
    "{x}[..., :{i}]",
    "{x}[{j}]",
    "{x}.unsqueeze(0)",
    "{x}.view(-1, 4)",
    "{x}.diagonal()",
    "{x}.unfold(0, {i}, {i})",
    "{x}.unfold(-1, 1, {i})",
    "{x}[:]",
    "{x}.detach()",
)
VALUES = (
    "{x} * 2",
    "{x} + 1",
    "{x} - {y}",
    "{x} * {y}",
    "{x}.clone()",
    "{x}.contiguous()",
    "{x}.to(torch.{dtype})",
    "{x}.flip(0)",
    "torch.where({x} > 3, {x}, {y})",
    "torch.cat([{x}, {y}])",
    "{x}.sum(-1, dtype=torch.{dtype})",
    "{x}.cumsum(0, dtype=torch.{dtype})",
    "{x}.roll(1, 0)",
    "{x} + 0",
    "{x}.repeat(2)",
    "torch.empty_like({x}).copy_({y})",
    "{x}.amax(0)",
)
WRITES = (
    "{x}.add_({k})",
    "{x}.sub_({k})",
    "{x}.mul_({y})",
    "{x}.add_({y})",
    "{x}.neg_()",
    "{x}.zero_()",
    "{x}.fill_({k})",
    "{x}.copy_({y})",
    "{x}[:] = {y}",
    "{x}[..., {i}:] = {k}",
    "{x}[:, 2:5] = {k}",
    "{x}[{j}] = {y}",
    "{x}[::2] = {k}",
    "{x}[1:].add_({k})",
    "{x}[..., ::2].copy_({y})",
    "{x}[{x} > 2] = {k}",
    "{x}.index_fill_(0, torch.tensor([0, 1], device={x}.device), {k})",
    "{x}.masked_fill_({y} < 0, {k})",
    "{x}.diagonal().fill_({k})",
    "{x}.index_add_(0, torch.tensor([1, 0], device={x}.device), {y}[:2].to({x}.dtype))",
    "{x}[torch.tensor([1, 0], device={x}.device)] = {y}[:2]",
    "{x}.view(torch.{dtype}).add_({k})",
    "{x}.view(torch.{dtype})[..., {i}:] = {k}",
)
# Steps of each kind, as often as they shall come.
KINDS = (VIEWS, VIEWS, VALUES, VALUES, WRITES, WRITES, WRITES)


def inputs(choose):
    """Two tensors on the CPU."""
    dtype, shape = choose(DTYPES), choose(SHAPES)
    count = torch.Size(shape).numel()
    first = torch.arange(-12, count - 12).to(dtype).reshape(shape)
    second = (torch.arange(count) * 3 - 20).to(choose((dtype, dtype, *DTYPES))).reshape(shape)
    return [first, second]


def program(choose, name, tensors):
    """A function's text. It takes `tensors`, whose contents this changes, and does not raise."""
    names = dict(zip("ab", tensors, strict=True))
    lines = []
    for number in range(choose(range(2, 9))):
        for _ in range(20):  # what raises is drawn again
            line = choose(choose(KINDS)).format(
                x=choose(list(names)),
                y=choose(list(names)),
                dtype=str(choose(DTYPES)).split(".")[1],
                i=choose((1, 2, 4)),
                j=choose((0, 1, -1)),
                k=choose((2, -4, 7)),
            )
            writes = "_(" in line or " = " in line
            text = line if writes and "empty_like" not in line else f"v{number} = {line}"
            if attempt(text, names):
                lines.append(text)
                break
    results = {choose(list(names)) for _ in range(choose((1, 1, 2, 3)))}
    again = choose(("{}", "{}", "{}.view(torch.int8)", "{}.view(torch.int64)"))
    texts = []
    for result in sorted(results):
        text = again.format(result)
        texts.append(text if attempt(f"r = {text}", dict(names)) else result)
    return "\n    ".join([f"def {name}(a, b):", *lines, f"return ({', '.join(texts)},)"])


def attempt(text, names):
    """Runs a line. False where it raises, or reads memory that it writes in another order."""
    before = {name: tensor.clone() for name, tensor in names.items()}
    target, _, source = text.partition(" = ") if " = " in text else text.partition("_(")
    read = [n for n in names if n in source.replace("[", " ").replace(".", " ").split()]
    read += [n for n in names if source.rstrip(")") == n]
    written = target.split("[")[0].split(".")[0]
    if written in names:
        storage = names[written].untyped_storage().data_ptr()
        if any(names[n].untyped_storage().data_ptr() == storage for n in read):
            return False
    try:
        exec(text, {"torch": torch}, names)
        return True
    except (RuntimeError, IndexError, ValueError, TypeError):
        for name, tensor in before.items():
            names[name].copy_(tensor)
        return False
