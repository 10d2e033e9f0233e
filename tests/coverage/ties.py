"""Ops that return where they found an element: which of equal ones they find is not defined."""

import torch

#: OpInfo name -> where `dim` stands among the arguments after the input.
DIM_POSITION = {
    "argsort": 0,
    "kthvalue": 1,
    "median": 0,
    "mode": 0,
    "nanmedian": 0,
    "sort": 0,
    "topk": 1,
}


def positions_of(op, leaves):
    """The number of the result of `op` that holds positions of elements; None without any."""
    if op.name == "argsort":
        return 0
    return 1 if op.name in DIM_POSITION and len(leaves) == 2 else None


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


def found(op, sample, call):
    """Where the op finds its elements in the sample, on the CPU; None where it looks for none."""
    if op.name == "msort":
        return torch.sort(sample.input, dim=0)[1].cpu()
    if op.name not in DIM_POSITION:
        return None
    leaves = torch.utils._pytree.tree_leaves(call(op, sample))
    number = positions_of(op, leaves)
    return None if number is None else leaves[number].cpu()
