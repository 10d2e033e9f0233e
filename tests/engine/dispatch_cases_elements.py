"""What makes the engines of single elements choose (test_dispatch.py)."""

import torch


def indexed(call, *shape, high=40):
    """call(numbers, indices, numbers of the indices' shape), which are small integers."""

    def run(device):
        g = torch.Generator().manual_seed(0)
        x = torch.randint(-3, 4, (40, 50), generator=g).float().to(device)
        i = torch.randint(0, high, shape, generator=g).to(device)
        v = torch.randint(-3, 4, (*shape, 50)[:2], generator=g).float().to(device)
        return call(x, i, v)

    return run


CASES = {
    "index": [
        indexed(lambda x, i, v: x[i], 70),
        indexed(lambda x, i, v: x.gather(0, i), 40, 50),
        indexed(lambda x, i, v: x.gather(1, i), 40, 3),
        indexed(lambda x, i, v: x.index_copy(0, i.unique(), v[: len(i.unique())]), 10),
        indexed(lambda x, i, v: x.index_fill(1, i, 2.0), 20),
        indexed(lambda x, i, v: x.index_add(0, i, v), 70),
        indexed(lambda x, i, v: x.scatter_add(0, i, v), 40, 50),
        indexed(lambda x, i, v: x[:, 0].contiguous().index_add(0, i, v[:, 0]), 9),
    ],
}
