"""What is measured and tested on a GPU; ``ci/gpu`` and ``ci/gpu-wheels`` run it.

``stages`` has the stages of both calls, ``run`` runs them, ``tests`` reads what their tests said, ``facts`` says what
machine it is, and ``kernels`` compiles the kernels: these import only Python's standard library, and ``wheels`` gathers
what the others need. ``read``, ``write``, ``loader``, ``imaging``, ``questions`` and ``sanitizer`` measure in processes
that may die (``steps``); ``model`` needs no GPU.
"""
