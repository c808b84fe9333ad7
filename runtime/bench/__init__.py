"""`runtime bench`: a camera-like stream under budgets, beside the same stream on fixed paths.

scenario    what happens when: budgets, co-running loads
load        the co-running loads, as processes
drive       run a stream through a model and keep what happened
windows     power over sliding seconds
held        was each limit held;  judged: how good were the answers;  summary: both, and the rest, of one run
switching   what a change of path costs
energy      the energy report: joules per frame, how they were obtained, under which conditions
forecast    what budgets would give, from the measured frontier
bench       the whole comparison, as one document
"""
