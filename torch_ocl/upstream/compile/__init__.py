"""Changes in Dynamo, AOTAutograd, Inductor and torch.export."""
