# lock: rewrite the locked dependencies from pyproject.toml
