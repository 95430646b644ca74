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

``batch(step)`` depends on the seed and the step alone, so a run resumes at any step. The modules:

- ``sources``: the only place that knows where bytes come from; ``DataUnavailable`` when they do not.
- ``cache``: derived bytes kept between processes; speed only.
- ``wikipedia``: the plain text of the embedded Wikipedia articles and their split.
- ``vocabulary``: text to token ids and back, without loss.
- ``text``: a split text with its vocabulary, tokens, counts and fingerprint.
- ``batches``: training and evaluation batches, causal and masked.
- ``masking``: what a masked language model has to predict; without torch, for configs.
- ``ngrams``: n-gram language models on the same tokens.
- ``images``: the embedded MNIST-5k.

Nothing here opens a network connection.
"""
