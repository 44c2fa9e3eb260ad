"""The LoRA trainer: runs under torchrun in the training environment (requirements/training.txt).

It needs torch, transformers and peft, and of Shakedown only modules that need nothing but the standard
library. `launch.py` is its entry.
"""
