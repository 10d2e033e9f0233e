"""What is changed in torch.distributed."""
