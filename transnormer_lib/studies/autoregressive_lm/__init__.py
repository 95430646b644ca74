# The judged runs of each plan (studies/common/plans.py).
PLANS = {
    "plan_of_recall": ("causal-recall-*", "causal-copy-*"),
    "plan_of_causes": (
        "causal-norm-norm-*",
        "causal-norm-per-head-*",
        "causal-linear-detached-*",
        "causal-linear-normed-*",
        "causal-linear-unscaled-*",
        "causal-softmax-normed-*",
    ),
    "plan_of_locality": ("causal-scattered-norm-*", "causal-window-norm-*", "causal-softmax-norm-*"),
    "plan_of_growing_remedies": ("causal-dim*-norm-norm-*", "causal-dim*-linear-matched-*"),
    "plan_of_growth": ("causal-dim*",),
    "plan": ("*",),
}
