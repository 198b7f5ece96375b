"""A trained binary network as a model folder of xnord (proto/MODELS.md).

checkpoint.py, mxnet_file.py   files into named tensors, and those into parts in their order
families/                      tensors of a known architecture into layers
onnx_file.py, onnx_ops.py      ONNX and QONNX graphs into layers
network.py, numbers.py, bits.py  layers and their tensors; batch norm, scales; signs as bits
zeros.py                       whether a sign can be that of exactly 0
index.py                       codes into an index for Hamming search
folder.py                      the folder, written
run_folder.py, check.py        the folder, computed once more; beside the daemon's answers
"""


class ConvertError(Exception):
    """What cannot be converted, and why: a message for the user."""
