"""Decompositions whose vectors are not unique.

A singular vector or an eigenvector may be multiplied by any number of modulus 1 (the one on the
other side with it), those of equal values may be mixed, and so may those that complete a basis.
Which ones come out depends on the algorithm, so the matrix compares what they make up, as PyTorch's
own tests do: the decomposed matrix, and that the vectors are orthonormal. What flows back through
them comes from functions that don't see the difference: the samples' output_process_fn_grad.
"""


def _eigh(values, vectors):
    product = (vectors * values.to(vectors.dtype).unsqueeze(-2)) @ vectors.mH
    return [values, product, vectors.mH @ vectors]


def _svd(u, s, vh):
    k = s.shape[-1]
    product = (u[..., :k] * s.to(u.dtype).unsqueeze(-2)) @ vh[..., :k, :]
    return [s, product, u.mH @ u, vh @ vh.mH]


#: OpInfo name -> number of results, what is unique of them.
DECOMPOSITIONS = {
    "linalg.eigh": (2, _eigh),
    "linalg.svd": (3, _svd),
    "svd": (3, lambda u, s, v: _svd(u, s, v.mH)),
}


def invariants(op, leaves):
    """The unique part of an op's results: of most ops, the results."""
    count, function = DECOMPOSITIONS.get(op.name, (len(leaves), None))
    # Gradients of a decomposition are other numbers of tensors.
    return leaves if function is None or len(leaves) != count else function(*leaves)
