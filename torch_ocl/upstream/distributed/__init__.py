"""Changes in torch.distributed."""
