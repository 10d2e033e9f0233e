"""Engines made for inference, as the other side of a comparison. Each takes a case's network or
GGUF file, and as many threads as CPU torch.

They are packages of pip: onnxruntime and onnx, openvino, llama-cpp-python.
"""

import ctypes
import importlib.util
import pathlib
import tempfile

import torch

from benchmarks.harness.measure import Side


class OnnxRuntime:
    title, package = "ONNX Runtime", "onnxruntime"

    @staticmethod
    def takes(case):
        # Its CPU provider has no products of bfloat16.
        return case.network is not None and case.dtype == "float32"

    def side(self, case):
        import onnxruntime

        model, image = case.network()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "network.onnx"
            torch.onnx.export(model, (image,), path, input_names=["image"], dynamo=False)
            session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        given = {"image": image.numpy()}
        return Side(lambda: torch.from_numpy(session.run(None, given)[0]), "cpu")


class OpenVino:
    title, package = "OpenVINO", "openvino"

    @staticmethod
    def takes(case):
        return case.network is not None

    def side(self, case):
        import openvino

        model, image = case.network()
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "bf16" if case.dtype == "bfloat16" else "f32",
        }
        converted = openvino.convert_model(model, example_input=image, input=list(image.shape))
        request = openvino.Core().compile_model(converted, "CPU", settings).create_infer_request()
        given = [image.numpy()]
        return Side(lambda: torch.from_numpy(request.infer(given)[0]), "cpu")


class LlamaCpp:
    title, package = "llama.cpp", "llama_cpp"

    @staticmethod
    def takes(case):
        return case.gguf is not None

    def side(self, case):
        import llama_cpp

        from benchmarks.cases.inference import LLAMA, words

        threads = torch.get_num_threads()
        model = llama_cpp.Llama(
            str(case.gguf()), n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        *before, last = words()[0].tolist()
        # One by one: its products of several rows by AMX end the process on a system that was not
        # asked for AMX (llama-cpp-python 0.3.36).
        for word in before:
            model.eval([word])
        size = LLAMA["vocab_size"]

        def call():
            model.n_tokens = len(before)  # what was evaluated behind them is forgotten
            model.eval([last])
            scores = llama_cpp.llama_get_logits_ith(model.ctx, -1)
            numbers = ctypes.cast(scores, ctypes.POINTER(ctypes.c_float * size)).contents
            return torch.frombuffer(bytearray(numbers), dtype=torch.float32)

        return Side(call, "cpu")


#: Names on the command line.
ENGINES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino, "llama.cpp": LlamaCpp}


def is_installed(name):
    return importlib.util.find_spec(ENGINES[name].package) is not None
