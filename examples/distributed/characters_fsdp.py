"""The transformer of ../characters.py, its parameters sharded over processes with FSDP2.

torchrun --standalone --nproc-per-node=2 examples/distributed/characters_fsdp.py
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.append(str(Path(__file__).resolve().parents[1]))
from characters import BATCH, LENGTH, Writer, texts  # noqa: E402


def batches(text: str, rank: int, size: int):
    """This process's part of each batch: inputs, and the letters that follow."""
    codes = {letter: code for code, letter in enumerate(sorted(set(text)))}
    encoded = torch.tensor([codes[letter] for letter in text])
    pieces = encoded[: len(encoded) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    pieces = pieces[torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))]
    for piece in pieces.split(BATCH):
        mine = piece.chunk(size)
        if len(mine) == size:  # the last batch may be too small
            yield mine[rank][:, :-1], mine[rank][:, 1:].flatten()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--save", help="a folder for a distributed checkpoint")
    arguments = parser.parse_args()

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    kind = torch.accelerator.current_accelerator().type
    torch.accelerator.set_device_index(local)
    device = torch.device(kind, local)

    torch.manual_seed(0)
    text = texts()
    model = Writer(len(set(text))).to(device)
    options = {"mesh": init_device_mesh(kind, (size,))}
    if arguments.bf16:
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for layer in model.layers.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step, (inputs, targets) in enumerate(batches(text, rank, size)):
        if step == arguments.steps:
            break
        optimizer.zero_grad()
        scores = model(inputs.to(device))
        loss = nn.functional.cross_entropy(scores.float(), targets.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    curve = torch.stack(losses)
    dist.all_reduce(curve)
    if rank == 0:
        print(f"loss {curve[0].item() / size:.4f} -> {curve[-1].item() / size:.4f}")
    own = sum(p.to_local().numel() for p in model.parameters())
    print(f"rank {rank}: {own} of {sum(p.numel() for p in model.parameters())} parameters")
    if arguments.save:
        dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=arguments.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
