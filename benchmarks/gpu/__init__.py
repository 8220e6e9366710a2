"""What is measured and tested on a GPU; ``ci/gpu`` and ``ci/gpu-wheels`` run it.

``stages`` has the stages of both calls, ``run`` runs them, ``tests`` says what their tests said, ``facts`` what machine
it is: these import only Python's standard library, as ``wheels`` and ``kernels`` do of what they need there. Programs
are ``read``, ``write``, ``loader``, ``imaging``, ``questions``, ``sanitizer``, which measure in processes that may die
(``steps``), and ``model``, which needs no GPU: ``python benchmarks/gpu PROGRAM``.
"""
