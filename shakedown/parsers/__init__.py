"""One parser per tool: text in, typed result out. What is not understood is refused, never guessed.

A parser does no input or output. It returns a complete result or raises `shakedown.errors.BadInput`, which
names file, line and, where there is one, the way to mend it.
"""
