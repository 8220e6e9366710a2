"""Patches in random poses teach what one sample cannot: a 2-D U-Net that finds fibres of every direction.

    python docs/examples/unet_poses.py

In the sample to learn from, all fibres run along x. In the one to judge by, they run in all directions.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch
from torch import nn

import gzarr
from gzarr.loader import Patches

DEVICE = "cpu"  # on a GPU: "cuda"; then chunks are decoded there, and patches are resampled there
POSES: dict[str, Any] = {"rotate": True, "scale": (0.9, 1.1), "interpolation": {"label": "nearest"}, "pad": "symmetric"}


def write_sample(root: str, name: str, directions: float, seed: int) -> None:
    """Write an image (f4) of fibres in noise, at most ``directions`` radians from x, and where they are (u1)."""
    rng = np.random.default_rng(seed)
    label, (y, x) = np.zeros((192, 192), "u1"), np.mgrid[:192, :192]
    for cy, cx, turn in rng.uniform((0, 0, -directions), (192, 192, directions), (30, 3)):
        along = (y - cy) * np.sin(turn) + (x - cx) * np.cos(turn)
        across = (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
        label[(abs(along) < 24) & (abs(across) < 1.5)] = 1
    gzarr.create_array(f"{root}/{name}/image", data=rng.normal(label, 0.8).astype("f4"), chunks=(64, 64))
    gzarr.create_array(f"{root}/{name}/label", data=label, chunks=(64, 64))


class UNet(nn.Module):
    """Two levels; (batch, 1, y, x) to logits of the same shape."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        layers = [nn.Conv2d(n, width, 5, padding=2) for n in (1, width, width, width)]
        self.fine = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU())
        self.coarse = nn.Sequential(nn.MaxPool2d(2), layers[2], nn.ReLU(), layers[3], nn.ReLU(), nn.Upsample(None, 2))
        self.last = nn.Conv2d(2 * width, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([fine := self.fine(image), self.coarse(fine)], dim=1))


def train(root: str, poses: dict[str, Any], epochs: int = 20) -> UNet:
    torch.manual_seed(0)
    sample = {part: gzarr.open_array(f"{root}/along-x/{part}", device=DEVICE) for part in ("image", "label")}
    patches = Patches((48, 48), stride=24, jitter=True, **(poses or {"pad": "symmetric"}))
    loader = gzarr.Loader(sample, patches, batch_size=8, seed=1, like="torch")
    model = UNet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(epochs):
        for batch in loader:
            found, label = model(batch["image"].unsqueeze(1)), batch["label"].float().unsqueeze(1)
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(found, label).backward()
            optimizer.step()
    return model


def overlap(model: UNet, root: str) -> float:
    """Return the Dice overlap of what a model finds in the other sample with what is there: from 0 to 1."""
    image, label = (gzarr.open_array(f"{root}/all/{part}")[...] for part in ("image", "label"))
    with torch.no_grad():
        found = model(torch.from_numpy(image)[None, None].to(DEVICE))[0, 0].cpu().numpy() > 0
    return float(2 * (found & (label > 0)).sum() / (found.sum() + label.sum()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        write_sample(directory, "along-x", 0, 0)
        write_sample(directory, "all", np.pi / 2, 1)
        for name, poses in (("as they are", {}), ("in random poses", POSES)):
            print(f"{name}: {overlap(train(directory, poses), directory):.2f}")
