"""`runtime bench`: a camera-like stream under budgets, beside the same stream on fixed paths.

    scenario    what happens when: budgets, a co-running load             load       the co-running load
    drive       run a stream through a model and keep what happened       windows    power over sliding seconds
    summary     what came of a run                                        bench      the whole comparison
"""
