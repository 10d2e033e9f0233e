"""Random programs that compute a number of integers, floats and sizes, and hand it to an op."""

#: The numbers: an integer that changes, and sizes of the tensor.
INTEGERS = ("v", "t.numel()", "t.shape[0]", "2", "3", "7")
FLOATS = ("0.5", "0.3", "1.25", "2.75", "1e-3", "math.pi")

# Upstream raises for a remainder in a product.
OF_INTEGERS = ("({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} // 3)",
               "abs({a})", "min({a}, {b})", "max({a}, {b})")  # fmt: skip

#: They are of an integer `i`, a float `x` of an integer, and a constant `c`.
OF_FLOATS = ("({i} * {c})", "({i} + {c})", "({i} - {c})", "({i} / 4)", "(-{x})", "abs({x})",
             "min({x}, {c})", "max({x}, {c})", "({x} + {i})", "({x} * {c})", "({c} * {x})",
             "math.sqrt(abs({x}))", "math.sin({i})", "round({x}, 1)", "round({x} * 10, -1)",
             "(int({x}) * {c})", "({x} + {c})", "float({i})", "(abs({x}) ** 1.5)")  # fmt: skip

#: Each takes a number `x`; the second part says whether it has a gradient here.
CONSUMERS = {
    "torch.full_like(t, {x})": False,
    "torch.full_like(t, {x}, dtype=torch.float64)": False,
    "torch.full_like(t, {x}, dtype=torch.bfloat16)": False,
    "t.new_full((2, 3), {x})": False,
    "t.clamp_min({x})": True,
    "t.clamp(max={x})": True,
    "t.clamp(-abs({x}), abs({x}))": True,
    "t.int().clamp(max={x})": False,
    "t.int().clamp_min({x})": False,
    "t.masked_fill(t > 1, {x})": True,
    "torch.where(t > {x}, t, {x})": True,
    "F.threshold(t, {x}, {x})": True,
    "(t * {x})": True,
    "(t.int() * {x})": False,
    "(t + {x})": True,
    "(t.int() + {x})": False,
    "({x} - t)": True,
    "(t / (abs({x}) + 1))": True,
    "torch.add(t, t, alpha={x})": True,
    "F.hardtanh(t, -abs({x}) - 1, abs({x}) + 1)": True,
    "F.leaky_relu(t, {x})": True,
    "F.normalize(t, dim=0, eps=abs({x}) + 1e-3)": True,
    "(t.abs() + {x}).sum()": True,
    "(t > {x}).sum()": False,
}


def integer(choose, depth):
    if not depth:
        return choose(INTEGERS)
    a, b = (integer(choose, choose(range(depth))) for _ in range(2))
    return choose(OF_INTEGERS).format(a=a, b=b)


def number(choose, depth):
    """The text of a float of integers."""
    i, c = integer(choose, choose(range(depth + 1))), choose(FLOATS)
    if not depth:
        return choose(OF_FLOATS[:4]).format(i=i, c=c)
    return choose(OF_FLOATS).format(i=i, c=c, x=number(choose, choose(range(depth))))


def program(choose, name):
    """A function of a tensor and an integer."""
    consumer = choose(CONSUMERS)
    return f"def {name}(t, v):\n    return {consumer.format(x=number(choose, choose(range(3))))}"
