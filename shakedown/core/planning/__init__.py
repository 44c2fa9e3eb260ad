"""How each stage is planned: one file a stage; `shakedown.core.planner` calls them in order."""
