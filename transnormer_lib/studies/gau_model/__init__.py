"""Notebook 15: the GAU-based model, pre-trained on Chinese by whole-word masking and fine-tuned, beside RoFormer."""

READS = ("params/paper/15_gau_model.yaml",)  # the notebook compares it with Tables 6 and 7
