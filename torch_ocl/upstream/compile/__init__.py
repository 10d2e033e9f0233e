"""What is changed in Dynamo, AOTAutograd, Inductor and torch.export."""
