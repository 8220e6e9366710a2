"""A forecast in JAX: two fields of a group at the steps t-1 and t, to the same fields at t+1.

    python docs/examples/weather_jax.py [DIRECTORY]

DIRECTORY gets a made-up reanalysis: waves that travel around a globe of 32 x 64 points, 400 steps in chunks of 8.
"""

from __future__ import annotations

import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import gzarr
from gzarr.loader import Windows

FIELDS = {"t2m": (280, 10), "z500": (54000, 1500)}  # mean and scale
DEVICE = "cpu"  # on a GPU: "cuda"; then chunks are decoded there, and nothing else changes


def write_fields(root: str) -> None:
    """Write a group of two variables (time, lat, lon)."""
    rng = np.random.default_rng(0)
    time, lat, lon = np.ogrid[:400, :32, :64]
    group = gzarr.create_group(root)
    for name, (mean, scale) in FIELDS.items():
        field = sum(
            np.sin(np.pi * (lat + 0.5) / 32) * np.cos(k * np.pi / 32 * lon - speed * time + phase)
            for k, speed, phase in zip((1, 2, 3, 5), rng.uniform(0.3, 0.9, 4), rng.uniform(0, 6, 4), strict=True)
        )
        group.create_array(name, data=(mean + scale * field).astype("f4"), chunks=(8, 32, 64))


def stacked(fields: dict[str, jax.Array]) -> jax.Array:
    """Return normalised fields: (batch, lat, lon, fields x steps)."""
    columns = [(fields[name] - mean) / scale for name, (mean, scale) in FIELDS.items()]
    return jnp.moveaxis(jnp.concatenate(columns, axis=1), 1, -1)


def forecast(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """Return the fields one step later: a convolution that goes around the globe."""
    around = jnp.pad(x, ((0, 0), (0, 0), (3, 3), (0, 0)), mode="wrap")
    return jax.lax.conv_general_dilated(around, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@jax.jit
def step(kernel: jax.Array, velocity: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    loss, slope = jax.value_and_grad(lambda kernel: jnp.mean((forecast(kernel, x) - y) ** 2))(kernel)
    velocity = 0.9 * velocity - 0.02 * slope
    return kernel + velocity, velocity, loss


def train(root: str, epochs: int = 6) -> tuple[float, float]:
    """Return the mean squared error of the last epoch, and that of the fields at t as the forecast (persistence)."""
    group = gzarr.open_group(root, device=DEVICE)
    windows = Windows(0, {"x": (-1, 0), "y": (1, 1)})  # first and last step, both included
    loader = gzarr.Loader({name: group[name] for name in FIELDS}, windows, batch_size=16, seed=1, like="jax")
    kernel, velocity = jnp.zeros((1, 7, 4, 2)), jnp.zeros((1, 7, 4, 2))
    losses, persistence = [], []
    for epoch in range(epochs):
        for batch in loader:
            x, y = stacked(batch["x"]), stacked(batch["y"])
            kernel, velocity, loss = step(kernel, velocity, x, y)
            losses.append(float(loss))
            persistence.append(float(jnp.mean((x[..., 1::2] - y) ** 2)))
        reached, known = float(np.mean(losses[-len(loader) :])), float(np.mean(persistence))
        print(f"epoch {epoch}: error {reached:.4f}, persistence {known:.4f}")
    return reached, known


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        directory = sys.argv[1] if len(sys.argv) > 1 else f"{temporary}/weather.zarr"
        write_fields(directory)
        train(directory)
