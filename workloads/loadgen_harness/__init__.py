"""Inference behind MLPerf LoadGen: programs of the inference environment.

`search` is pure; the others run inside a job, on the inference environment's own Python: numpy, LoadGen and,
for GPUs, PyTorch. Nothing here needs what the rest of Shakedown depends on.
"""
