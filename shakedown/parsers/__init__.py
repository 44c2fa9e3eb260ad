"""One parser per tool: text in, typed result out. What is not understood is refused, never guessed."""
