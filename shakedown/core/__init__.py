"""The pure core: physics, references, plan, verdict, statistics, mesh. Nothing here does input or output."""
