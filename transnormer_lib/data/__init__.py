"""Data: where bytes come from, vocabularies, batches, n-gram baselines. A leaf: imports nothing else of ours.

What a trainer needs::

    from transnormer_lib.data.batches import causal_batches, evaluation_windows, masked_batches
    from transnormer_lib.data.text import load_text_corpus

    corpus = load_text_corpus("wikipedia", "bytes")          # or "bpe-512": 512 pieces
    corpus.fingerprint                                       # sha256: what was read, its split, its encoding
    corpus.tokens["train"]                                   # int32 [T]; also "validation" and "test"
    corpus.vocabulary                                        # encode, decode, size, pad_id, mask_id

    sampler = causal_batches(corpus.tokens["train"], length=128, batch_size=8, seed=1)
    batch = sampler.batch(step)                              # {"input_ids": [B, N], "targets": [B, N]}, int64
    for batch in evaluation_windows(corpus.tokens["validation"], length=128, batch_size=8, limit=64): ...
    corpus.bits_per_byte(nats_per_token, "validation")

And what a classifier needs::

    from transnormer_lib.data.classification_batches import evaluation_batches, training_batches
    from transnormer_lib.data.tasks import load_task

    task = load_task("acceptability")                        # "cola", "listops", ...: tasks.task_names()
    sampler = training_batches(task.splits["train"], pad_id=task.pad_id, batch_size=32, seed=1)
    sampler.batch(step)                                      # {"input_ids", "key_padding_mask", "targets"}
    for batch in evaluation_batches(task.splits["validation"], pad_id=task.pad_id, batch_size=32): ...

``batch(step)`` depends on the seed and the step alone, so a run resumes at any step. The modules:

- ``sources``: the only place that knows where bytes come from: embedded, data root, Hub; ``DataUnavailable`` when
  they do not, ``DataFault`` when they are wrong (``faults``).
- ``hub``: what lies on the Hub: revisions, licences, columns, digests; ``fingerprints``: files held against theirs;
  ``tables``: rows of Parquet and tab-separated files, every value checked.
- ``cache``: derived bytes kept between processes; speed only.
- ``wikipedia``: the plain text of the embedded Wikipedia articles and their split.
- ``vocabulary``: text to token ids and back, without loss.
- ``words``: a vocabulary of whole words; ``token_files``: texts larger than memory, tokenised once into mapped files;
  ``wikitext``: WikiText-103 by these two.
- ``text``: a split text with its vocabulary, tokens, counts and fingerprint.
- ``batches``: training and evaluation batches, causal and masked.
- ``masking``: what a masked language model has to predict; without torch, for configs.
- ``ngrams``: n-gram language models on the same tokens.
- ``images``: the embedded MNIST-5k.
- ``tasks``: the classification tasks by name; ``glue``, ``lra`` and ``sentences`` (stand-ins made of the articles)
  say what they are, ``task_kinds`` and ``task_tables`` how they are read.
- ``examples``, ``classification_batches``: labelled sequences of unequal length, and padded batches of them.
- ``listops``, ``pathfinder``: generated tasks of the Long Range Arena; ``chunks``: generation over processes.

Embedded data open no connection. Real data are fetched where they are asked for and neither the data root nor the Hub's
cache has them, unless ``HF_HUB_OFFLINE=1``.
"""
