"""Node stage: how fast every GPU multiplies matrices and copies its own memory, second by second."""
