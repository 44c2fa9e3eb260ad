"""The lab without virtual machines: each machine is namespaces of this host, with GPUs of its own."""
