"""Config stage: what each switch says of itself, and both ends of every cable against each other."""
