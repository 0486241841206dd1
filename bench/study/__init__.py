"""The parts of `bench/routing.py`: what is compared (`setting`), how it is run (`runs`), tuned (`tuning`) and searched.

Each section of the study is a module with `section(plan, pool) -> dict`, the part of the JSON that is its own.
"""
