"""Application stage: LoRA fine-tuning of a Llama."""
