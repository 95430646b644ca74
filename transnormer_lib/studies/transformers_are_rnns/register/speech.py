"""Checks on speech recognition: the sizes of the encoder, and how far ahead Table 3 has linear attention."""

from transnormer_lib.studies.speech_ctc import runs as speech
from transnormer_lib.studies.transformers_are_rnns.register.checks import Effect, Found, check, printed, said


@check("six-heads-of-256")
def six_heads() -> Found:
    heads = said("Section 4.3", "speech", "heads")
    dim, head_dim = (said("Section 4.2.1", "mnist", name) for name in ("dim", "head_dim"))
    return Found(
        {
            "width of the image models over the heads of speech": dim / heads,
            "width of so many heads of the image models": heads * head_dim,
        },
        {
            "the width cannot be cut into six heads": dim % heads != 0,
            "six heads as wide as those of the images have another width": heads * head_dim != dim,
            "that is the width that is taken": heads * head_dim == speech.PRINTED_WIDTH,
        },
        (Effect("width of the encoders", heads * head_dim, dim),),
    )


@check("lstm-is-not-far-behind-in-speed")
def lstm_speed() -> Found:
    seconds = {row: printed("table_3", "seconds_per_epoch", row) for row in ("Bi-LSTM", "Softmax", "LSH-4", "Linear")}
    over = {row: value / seconds["Linear"] for row, value in seconds.items()}
    errors = {row: printed("table_3", "per", row) for row in seconds}
    claimed = said("Section 4.3", "sentences", "times_faster_per_epoch")
    return Found(
        {"seconds of an epoch over linear attention's": over, "phoneme error rates": errors},
        {
            "the LSTM takes less than a third longer": over["Bi-LSTM"] < 4 / 3,
            "softmax takes more than three times as long, as the text says": over["Softmax"] > claimed,
            "softmax has the lowest error": min(errors, key=errors.__getitem__) == "Softmax",
        },
    )
