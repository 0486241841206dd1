"""The pure core: values, models and the router. No clock, no I/O, no randomness of its own, no framework."""
