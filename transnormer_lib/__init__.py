"""The TransNormer companion: check "The Devil in Linear Transformer" claim by claim.

Subpackages, in the order in which they build on each other: ``attention``, ``models``, ``training``,
``analysis``, ``studies``, ``report``; ``data`` and ``paper`` are leaves. Nothing heavy is imported here.
"""

__version__ = "0.1.0"
