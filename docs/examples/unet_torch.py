"""Segmentation in PyTorch: a small 3-D U-Net on patches of a volume and of its labels.

    python docs/examples/unet_torch.py [DIRECTORY]

DIRECTORY gets a made-up volume, 64³ voxels with bright balls in noise, in the chunks that such volumes have.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import torch
from torch import nn

import gzarr
from gzarr.loader import Patches

DEVICE = "cpu"  # on a GPU: "cuda"; then chunks are decoded there, and nothing else changes


def write_volume(root: str) -> None:
    """Write "image" (u2) and "label" (u1) of one shape."""
    rng = np.random.default_rng(0)
    z, y, x = np.ogrid[:64, :64, :64]
    label = np.zeros((64, 64, 64), "u1")
    for centre in rng.integers(8, 56, (20, 3)):
        label[(z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 < 60] = 1
    image = rng.normal(np.where(label, 700, 400), 200).clip(0).astype("u2")
    gzarr.create_array(f"{root}/image", data=image, chunks=(16, 16, 16))
    gzarr.create_array(f"{root}/label", data=label, chunks=(16, 16, 16))


def convolutions(inputs: int, outputs: int) -> nn.Sequential:
    first, second = nn.Conv3d(inputs, outputs, 3, padding=1), nn.Conv3d(outputs, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


class UNet(nn.Module):
    """Two levels; (batch, 1, z, y, x) to logits of the same shape."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.fine, self.coarse = convolutions(1, width), convolutions(width, 2 * width)
        self.down, self.up = nn.MaxPool3d(2), nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.last = nn.Sequential(convolutions(2 * width, width), nn.Conv3d(width, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.fine(image)
        return self.last(torch.cat([fine, self.up(self.coarse(self.down(fine)))], dim=1))


def train(root: str, epochs: int = 3) -> list[float]:
    """Return the loss of each step."""
    torch.manual_seed(0)
    volume = {name: gzarr.open_array(f"{root}/{name}", device=DEVICE) for name in ("image", "label")}
    patches = Patches((16, 16, 16), jitter=True, pad=None)  # anywhere in the volume, others in each epoch
    loader = gzarr.Loader(volume, patches, batch_size=4, seed=1, like="torch")
    model = UNet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for epoch in range(epochs):
        for batch in loader:
            image, label = batch["image"].float().unsqueeze(1) / 400 - 1, batch["label"].float().unsqueeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses[-len(loader) :]):.3f}")
    return losses


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        directory = sys.argv[1] if len(sys.argv) > 1 else temporary
        write_volume(directory)
        train(directory)
