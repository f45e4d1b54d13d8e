"""Trained networks as files that run without this code: ONNX, or programs of `torch.export`."""

PACKAGES = {"onnx": ("onnx", "onnxruntime", "onnxscript"), "torch_export": ()}
"""By format, what it needs beside PyTorch."""
