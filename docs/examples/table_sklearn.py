"""A classifier in scikit-learn, trained by ``partial_fit`` on the rows of a table that need not fit memory.

    python docs/examples/table_sklearn.py [DIRECTORY]

DIRECTORY gets a made-up table: 20,000 rows of 200 features, sorted by class, as tables often are, in chunks of 100.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
from sklearn.linear_model import SGDClassifier

import gzarr
from gzarr.loader import Rows

CLASSES = np.arange(5)


def write_table(root: str) -> None:
    """Write "x" (f4, rows and features) and "y" (i8, the class of each row)."""
    rng = np.random.default_rng(0)
    y = np.sort(rng.integers(len(CLASSES), size=20_000))
    centres = rng.normal(0, 0.3, (len(CLASSES), 200))
    x = (centres[y] + rng.normal(size=(len(y), 200))).astype("f4")
    gzarr.create_array(f"{root}/x", data=x, chunks=(100, 200))
    gzarr.create_array(f"{root}/y", data=y, chunks=(1000,))


def train(root: str, shuffle: bool | str = "blocks", epochs: int = 1) -> float:
    """Return the share of held-out rows that are classified correctly."""
    table = {name: gzarr.open_array(f"{root}/{name}") for name in "xy"}  # scikit-learn takes arrays in host memory
    held_out = np.random.default_rng(1).random(20_000) < 0.1
    training = gzarr.Loader(table, Rows(where=~held_out), batch_size=50, seed=1, shuffle=shuffle)
    test = gzarr.Loader(table, Rows(where=held_out), batch_size=500, shuffle=False, drop_last=False)
    model = SGDClassifier(loss="log_loss", random_state=0)
    for epoch in range(epochs):
        for batch in training:
            model.partial_fit(batch["x"], batch["y"], classes=CLASSES)
        correct = sum(int((model.predict(batch["x"]) == batch["y"]).sum()) for batch in test)
        print(f"epoch {epoch}: {correct / held_out.sum():.1%} of {held_out.sum()} held-out rows are correct")
    return correct / int(held_out.sum())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        directory = sys.argv[1] if len(sys.argv) > 1 else temporary
        write_table(directory)
        train(directory)
