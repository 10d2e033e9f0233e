"""The generator: the op table (ops/*.yaml) and torchgen in, registrations and stub bindings out."""
