"""Sparse matrices, CSR and CSC, as AnnData stores them.

::

    m = gzarr.sparse.open("atlas.zarr", path="X")
    m[[5, 3, 5]]                      # three rows, a csr_array of SciPy, or of CuPy on a GPU
    m.to_dense(slice(0, 512))         # dense
    m.to_dense(mask, columns=genes)   # some columns, in this order
"""

from .creating import create, open
from .matrix import Matrix
from .parts import Parts
from .view import DenseView

__all__ = ["DenseView", "Matrix", "Parts", "create", "open"]
