"""What draws the pictures of the README and the pages: ``ci/figures``, or ``python benchmarks/pictures PROGRAM``.

``drawing`` has the style of all, ``charts`` the charts of results.
"""
