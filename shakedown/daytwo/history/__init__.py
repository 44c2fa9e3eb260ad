"""Every node and metric over the nights, with alarms, steps and what changed when."""
