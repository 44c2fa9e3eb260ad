"""Node stage: disks and shared file systems by fio, each node alone and all at once, data read back."""
