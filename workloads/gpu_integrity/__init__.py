"""Whether a GPU computes and remembers right, bit for bit.

PyTorch and the standard library only: it runs with the site's own interpreter.
"""
