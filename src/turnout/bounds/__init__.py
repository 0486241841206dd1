"""What no router can beat on a trace, and what a schedule that knows everything reaches: bound <= optimum <= feasible.

Works on plain arrays and knows nothing of the router. `fluid` has B1 and B2, `interval` B3, `exact` the true optimum of
small traces, `feasible` a good schedule for large ones, `schedule` the form of both and its independent check.
"""
