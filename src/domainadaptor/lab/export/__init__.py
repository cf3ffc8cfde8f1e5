"""Networks as ONNX files, and predictions with them in onnxruntime."""
