"""ComfyUI's server, started from a checkout of it, and one workflow over HTTP.

    with Server(folder, base) as server:
        image = server.image(workflow)

It has a folder of its own for models and images. The checkout is only read.
"""

import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

CHECKPOINT = "tiny.safetensors"


def checkout() -> Path | None:
    """The folder that COMFYUI names."""
    named = os.environ.get("COMFYUI")
    return Path(named).resolve() if named else None


def version() -> str | None:
    """ComfyUI's, None without a checkout."""
    folder = checkout()
    if folder is None:
        return None
    names: dict[str, str] = {}
    exec((folder / "comfyui_version.py").read_text(encoding="utf-8"), names)
    return names["__version__"]


def make_checkpoint(folder: Path, base: Path) -> None:
    """The tiny checkpoint, where a server with this base finds it."""
    path = base / "models" / "checkpoints" / CHECKPOINT
    path.parent.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("comfyui_checkpoint.py")
    environment = os.environ | {"PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, str(script), str(path)], env=environment, check=True)


def workflow(size: int = 64, steps: int = 4) -> dict:
    """From a text to an image, in the format of ComfyUI's API."""

    def node(kind: str, **inputs) -> dict:
        return {"class_type": kind, "inputs": inputs}

    return {
        "1": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
        "2": node("CLIPTextEncode", clip=["1", 1], text="a red cat on a green tree"),
        "3": node("CLIPTextEncode", clip=["1", 1], text="a dog"),
        "4": node("EmptyLatentImage", width=size, height=size, batch_size=1),
        "5": node(
            "KSampler",
            model=["1", 0],
            positive=["2", 0],
            negative=["3", 0],
            latent_image=["4", 0],
            seed=7,
            steps=steps,
            cfg=4.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
        "7": node("SaveImage", images=["6", 0], filename_prefix="tiny"),
    }


class Server:
    """A server with some of ComfyUI's flags, as long as the block lasts."""

    def __init__(self, folder: Path, base: Path, *flags: str, wait: float = 180) -> None:
        self._log = base / "server.log"
        self._wait = wait
        for name in ("custom_nodes", "input", "output", "temp", "user"):
            (base / name).mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "main.py", f"--port={port}", f"--base-directory={base}"]
        # Neither the network nor the interface's package is needed.
        self._command += ["--disable-api-nodes", f"--front-end-root={base}", *flags]
        self._command += ["--database-url=sqlite:///:memory:"]
        self._folder = folder

    def __enter__(self) -> "Server":
        with open(self._log, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._until(lambda: self.get("/system_stats"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def get(self, path: str, data: dict | None = None) -> object:
        """The server's answer: to a POST if there is data."""
        body = None if data is None else json.dumps(data).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._address + path, body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = answer.read()
        return json.loads(found) if "json" in answer.headers["Content-Type"] else found

    def device(self) -> dict:
        """The server's facts of the device: type, name, memory."""
        return self.get("/system_stats")["devices"][0]

    def image(self, nodes: dict):
        """The pixels that a workflow makes, as a tensor of bytes."""
        import numpy
        import torch
        from PIL import Image

        number = self.get("/prompt", {"prompt": nodes})["prompt_id"]
        done = self._until(lambda: self.get(f"/history/{number}").get(number))
        if done["status"]["status_str"] != "success":
            raise RuntimeError(f"{done['status']}\n{self.log()[-2000:]}")
        image = next(out["images"][0] for out in done["outputs"].values() if "images" in out)
        query = f"filename={image['filename']}&subfolder={image['subfolder']}&type={image['type']}"
        pixels = Image.open(io.BytesIO(self.get(f"/view?{query}")))
        return torch.from_numpy(numpy.array(pixels))

    def _until(self, ask):
        end = time.monotonic() + self._wait
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"ComfyUI ended:\n{self.log()[-2000:]}")
            try:
                found = ask()
            except urllib.error.URLError:
                found = None
            if found:
                return found
            time.sleep(0.2)
        raise TimeoutError(f"ComfyUI gave no answer:\n{self.log()[-2000:]}")
