"""Turnout sends each piece of AI work to CPU or GPU: it measures, plans, routes, feeds and accounts in money.

Importing the package loads no framework: ONNX Runtime, torch, Ray and the web stack are imported where they are used.
"""

__version__ = "0.1.0"
