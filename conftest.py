"""Leave the doctests of modules out whose framework is not installed: importing them would fail."""

from importlib.util import find_spec

_NEEDS = {
    "integrations/lightning.py": "lightning",
    "integrations/onnx.py": "onnx",
    "integrations/onnx_graph.py": "onnx",
    "integrations/sklearn.py": "sklearn",
    "integrations/torchmetrics.py": "torchmetrics",
    "integrations/transformers.py": "transformers",
    "numerics/softmax_kernel.py": "triton",
    "studio/server.py": "starlette",
}
collect_ignore = [f"src/calibrant/{module}" for module, package in _NEEDS.items() if find_spec(package) is None]
