"""Ops that return where they found an element: which of equal ones they find is not defined."""

#: OpInfo name -> where `dim` stands among the arguments after the input.
DIM_POSITION = {"kthvalue": 1, "median": 0, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}


def finds_elements(op, leaves):
    """Whether these results of `op` are elements and their positions."""
    return op.name in DIM_POSITION and len(leaves) == 2


def found_at(op, sample, indices):
    """The elements of the sample's input that `indices` point at, on the CPU."""
    source, indices = sample.input.detach().cpu(), indices.cpu()
    if source.dim() == 0:
        return source.expand(indices.shape)
    position = DIM_POSITION[op.name]
    dim = sample.kwargs.get("dim", sample.args[position] if position < len(sample.args) else -1)
    if indices.dim() == source.dim():
        return source.gather(dim, indices)
    return source.gather(dim, indices.unsqueeze(dim)).squeeze(dim)
