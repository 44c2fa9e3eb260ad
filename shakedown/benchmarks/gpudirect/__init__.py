"""GPUDirect: what each NIC carries from and to GPU memory, by perftest itself."""
