"""Data: sources of bytes, vocabularies, batches, n-gram baselines. Imports no other package of this project but leaves.

For a language model::

    from transnormer_lib.data.batches import WindowBatches, evaluation_windows
    from transnormer_lib.data.corpora import load_text_corpus

    corpus = load_text_corpus("wikipedia", "bytes")          # or "bpe-512": 512 pieces
    corpus.fingerprint                                       # sha256 of the source, the split and the encoding
    corpus.tokens["train"]                                   # int32 [T]; also "validation" and "test"
    corpus.vocabulary                                        # encode, decode, size, pad_id, mask_id

    sampler = WindowBatches(corpus.tokens["train"], length=128, batch_size=8, seed=1)
    batch = sampler.batch(step)                              # {"input_ids": [B, N], "targets": [B, N]}, int64
    for batch in evaluation_windows(corpus.tokens["validation"], length=128, batch_size=8, limit=64): ...
    corpus.bits_per_byte(nats_per_token, "validation")

For a classifier::

    from transnormer_lib.data.classification_batches import ExampleBatches, Padding, evaluation_batches
    from transnormer_lib.data.tasks import load_task

    task = load_task("acceptability")                        # "cola", "listops", ...: tasks.task_names()
    padding = Padding(task.pad_id)
    sampler = ExampleBatches(task.splits["train"], padding, batch_size=32, seed=1)
    sampler.batch(step)                                      # {"input_ids", "key_padding_mask", "targets"}
    for batch in evaluation_batches(task.splits["validation"], padding, batch_size=32): ...

``batch(step)`` depends only on the seed and the step, so a run resumes at any step. ``sources`` reads all bytes,
embedded or in the data sets that ``hub`` describes. ``tasks`` knows the classification tasks by name; ``glue``, ``lra``
and ``sentences`` (stand-ins) define them, ``listops`` and ``pathfinder`` generate two of them. ``cache`` keeps derived
data.
"""
