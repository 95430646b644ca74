# The judged runs of each plan (studies/common/plans.py).
PLANS = {"plan_of_ladder": ("causal-ladder-*",), "plan": ("*",)}
