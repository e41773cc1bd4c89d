"""Writes reference.safetensors with the reference implementation (Python packages
safetensors and torch): python3 reference.py"""
import torch
from safetensors.torch import save_file

save_file(
    {
        "b.half": torch.tensor([0.1, -65504.0, 6e-8, torch.inf], dtype=torch.float16),
        "a.weight": torch.tensor([[0.0, -1.5, 3.0e38], [torch.inf, 1e-40, 0.1]]),
        "brain": torch.tensor([0.1, -1.0, torch.inf], dtype=torch.bfloat16),
        "empty": torch.zeros(0, 5),
        "scalar": torch.tensor(7.0),
        "ids": torch.tensor([-1, 2]),
        'quote"<&>é': torch.tensor([9], dtype=torch.uint8),
    },
    "reference.safetensors",
    {"format": "pt"},
)
