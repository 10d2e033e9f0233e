"""Programs that use the CPU alone. test_cpu_programs.py runs them with torch_ocl and without it.

Each function is a program; what it returns, raises and warns of must be the same. Run as a program,
this file runs all of them, each in a process forked from one that has only imported torch, and
prints a JSON object: the programs' names with what happened.
"""

import copy
import importlib
import inspect
import io
import json
import os
import sys
import tempfile
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def _inputs():
    return torch.arange(12.0).reshape(3, 4) / 12


def _train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(_inputs()).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [parameter.detach().tolist() for parameter in model.parameters()]


def _in_a_fork(function):
    """A function's result in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = function()
        except Exception as error:
            answer = repr(error)
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as file:
        return json.load(file)


def _group():
    torch.distributed.init_process_group(store=torch.distributed.HashStore(), rank=0, world_size=1)


def trains_with_each_kind_of_optimizer():
    kinds = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
    kinds += (torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.NAdam, torch.optim.Rprop)
    result = {}
    for kind in kinds:
        model = _model()
        result[kind.__name__] = _train(model, kind(model.parameters(), lr=0.1))
    return result


def trains_in_a_child_after_training():
    def train():
        model = _model()
        return _train(model, torch.optim.Adam(model.parameters()))

    return train(), _in_a_fork(train)


def asks_for_an_accelerator_and_forks():
    torch.accelerator.is_available()
    torch.accelerator.device_count()
    torch.get_device_module()

    def train():
        model = _model()
        return _train(model, torch.optim.Adam(model.parameters()))

    return _in_a_fork(train)


def loads_data_in_workers():
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(data, 2, shuffle=True, num_workers=2, generator=generator)
    return [[part.tolist() for part in batch] for _ in range(2) for batch in loader]


def data_parallel():
    model = nn.DataParallel(_model().eval())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    device = next(model.parameters()).device.type
    return repr(model), model.device_ids, device, list(model.state_dict()), _train(model, optimizer)


def data_parallel_as_a_function():
    return nn.parallel.data_parallel(_model(), _inputs())


def forks_the_random_state():
    torch.manual_seed(1)
    with torch.random.fork_rng():
        inside = torch.rand(2).tolist()
    return inside, torch.rand(2).tolist(), torch.initial_seed()


def checkpoints_activations():
    result = []
    for reentrant in (False, True):
        model, x = _model(), _inputs().requires_grad_()
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        result.append((x.grad.tolist(), model[0].weight.grad.tolist()))
    return result


def mixed_precision_in_bfloat16():
    model = _model()
    with torch.autocast("cpu"):
        out = model(_inputs())
    return (
        str(out.dtype),
        out.tolist(),
        torch.is_autocast_enabled(),
        torch.get_autocast_dtype("cpu"),
    )


def scaler_of_the_cpu():
    scaler, model = torch.amp.GradScaler("cpu", init_scale=8.0), _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(model(_inputs()).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.state_dict(), model[0].weight.tolist()


def scaler_of_no_device():
    scaler, model = torch.amp.GradScaler(), _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(_inputs()).sum()
    same = scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.load_state_dict({})
    state = scaler.state_dict(), scaler.is_enabled(), scaler.get_scale(), scaler._device
    return same, state, model[0].weight.tolist()


def saves_and_loads():
    file, model = io.BytesIO(), _model()
    optimizer = torch.optim.Adam(model.parameters())
    _train(model, optimizer)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    file.seek(0)
    everything = torch.load(file, weights_only=False, map_location="cpu")
    model.load_state_dict(everything["model"])
    copied = copy.deepcopy(model)
    return loaded["optimizer"]["state"][0]["exp_avg"].tolist(), copied[0].weight.tolist()


def saves_a_distributed_checkpoint():
    from torch.distributed import checkpoint as dcp

    with tempfile.TemporaryDirectory() as folder:
        state = {"a": torch.arange(3.0)}
        dcp.save(state, checkpoint_id=folder + "/a")
        state["a"].zero_()
        dcp.load(state, checkpoint_id=folder + "/a")
        return state["a"].tolist()


def old_types_and_storages():
    x = torch.ones(2)
    storage = x.storage()
    named = storage._get_legacy_storage_class().__name__, storage.type(), x.type()
    pickled = x.untyped_storage().device.type, isinstance(storage, torch.FloatStorage)
    torch.set_default_tensor_type(torch.DoubleTensor)
    return (
        named,
        pickled,
        torch.ones(1).type(),
        torch.get_default_dtype(),
        x.type("torch.IntTensor"),
    )


def names_devices():
    devices = torch.get_default_device(), torch.device("cpu"), torch.tensor(1).device
    with torch.device("cpu"):
        inside = torch.ones(1).device
    torch.set_default_device("cpu")
    return devices, inside, torch.ones(1).is_pinned(), torch.ones(1).get_device()


def moves_to_cuda():
    return torch.ones(1).cuda()


def moves_to_nothing():
    return torch.ones(1).to("nonsense")


def prints():
    return repr(torch.arange(6.0).reshape(2, 3) / 3), repr(_model()), str(torch.ones(2).dtype)


def scripts_and_traces():
    scripted = torch.jit.freeze(torch.jit.script(_model().eval()))
    traced = torch.jit.trace(_model().eval(), _inputs())
    return scripted(_inputs()).tolist(), traced(_inputs()).tolist(), str(scripted.graph)


def compiles():
    model = _model().eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(_inputs()).sum().backward()
    return compiled(_inputs()).tolist(), model[0].weight.grad.tolist()


def exports():
    return str(torch.export.export(_model().eval(), (_inputs(),)).graph)


def profiles():
    with torch.profiler.profile() as profiler:
        _model()(_inputs()).sum().backward()
    return sorted((event.key, event.count) for event in profiler.key_averages())


def transforms_functions():
    def gradient(x):
        return torch.func.grad(lambda y: y.sin().sum())(x)

    return torch.func.vmap(gradient)(_inputs()).tolist()


def works_with_many_modules():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.rand(2, 3, 8)
    with torch.no_grad():
        encoded = nn.TransformerEncoder(layer, 1)(x)
    recurrent = nn.LSTM(8, 4, batch_first=True)(x)[0]
    normed = nn.utils.parametrizations.weight_norm(_model()[0])
    flat = nn.utils.parameters_to_vector(normed.parameters())
    packed = nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True).data
    parts = encoded, recurrent, flat, packed, nn.LazyLinear(2)(x)
    return [part.tolist() for part in parts]


def shares_tensors_with_a_child():
    shared = torch.zeros(2).share_memory_()
    _in_a_fork(lambda: shared.add_(1).tolist())
    return shared.tolist(), shared.is_shared()


def process_group_of_no_backend():
    _group()
    x = torch.ones(2)
    torch.distributed.all_reduce(x)
    torch.distributed.barrier()
    objects = [None]
    torch.distributed.all_gather_object(objects, {"a": 1})
    return x.tolist(), objects, torch.distributed.get_backend()


def trains_data_parallel_in_processes():
    _group()
    model = nn.parallel.DistributedDataParallel(_model())
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    return _train(model, torch.optim.Adam(model.parameters())), str(mesh)


def pins_what_it_loads_and_forks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without an accelerator: that none is found
        loaded = [
            batch[0].tolist()
            for workers in (0, 2)
            for batch in DataLoader(
                TensorDataset(torch.arange(6.0)), 2, pin_memory=True, num_workers=workers
            )
        ]

    def gradient():
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        return x.grad.tolist()

    return loaded, gradient(), _in_a_fork(gradient)


def shards_on_the_default_mesh():
    from torch.distributed.fsdp import fully_shard

    _group()
    model = fully_shard(_model())
    model(_inputs()).sum().backward()
    return model[0].weight.grad.full_tensor().tolist()


def shards_on_a_mesh():
    from torch.distributed.fsdp import fully_shard

    _group()
    model = _model()
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
    model(_inputs()).sum().backward()
    return model[0].weight.grad.full_tensor().tolist()


def _outcome(program):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = repr(program())
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    warned = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    initialized = hasattr(torch, "ocl") and torch.ocl.is_initialized()
    return {"result": result, "warnings": warned, "initialized": initialized}


def all_programs():
    """The functions above."""
    others = (all_programs, main)
    return [
        value
        for name, value in globals().items()
        if inspect.isfunction(value)
        and value.__module__ == __name__
        and value not in others
        and not name.startswith("_")
    ]


def main():
    # Once, rather than in each child that needs them.
    modules = "_dynamo", "_functorch.aot_autograd", "distributed.checkpoint", "distributed.fsdp"
    for module in modules:
        importlib.import_module(f"torch.{module}")
    outcomes = {
        program.__name__: _in_a_fork(lambda program=program: _outcome(program))
        for program in all_programs()
    }
    sys.stdout.write("\n" + json.dumps(outcomes))


if __name__ == "__main__":
    main()
