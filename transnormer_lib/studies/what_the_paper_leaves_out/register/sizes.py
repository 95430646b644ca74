"""Checks on the sizes of models: what the parameter counts of Tables 4 and 5 decide."""

from dataclasses import replace

from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.papers import settings
from transnormer_lib.studies.lra import results as arena
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import millions
from transnormer_lib.studies.what_the_paper_leaves_out.table_13 import MODELS, fits, matching_flash_layers, printed


@check("glu-widths-swapped")
def glu_widths() -> Found:
    decoder, encoder = (
        settings.said("transnormer", "Table 13", model, "glu") for model in ("autoregressive", "bidirectional")
    )
    four, five = printed("decoder", "TransNormer T2"), printed("encoder", "TransNormer T2")
    swapped = [
        millions("transnormer-t2", "decoder", hidden=encoder),
        millions("transnormer-t2", "encoder", hidden=decoder),
    ]
    as_printed = [
        millions("transnormer-t2", "decoder", hidden=decoder),
        millions("transnormer-t2", "encoder", hidden=encoder),
    ]
    return Found(
        {
            "Tables 4 and 5 (M)": [four, five],
            f"{encoder} in the decoder, {decoder} in the encoder (M)": swapped,
            f"{decoder} in the decoder, {encoder} in the encoder, as printed (M)": as_printed,
        },
        {
            "exchanged, both counts are the printed ones": fits(swapped[0], four) and fits(swapped[1], five),
            "as printed, neither is": not fits(as_printed[0], four) and not fits(as_printed[1], five),
        },
        (
            Effect("parameters of the decoder (M)", swapped[0], as_printed[0]),
            Effect("parameters of the encoder (M)", swapped[1], as_printed[1]),
        ),
    )


@check("tokenizer")
def tokenizer() -> Found:
    said = settings.said("transnormer", "Table 13", "autoregressive", "vocabulary")
    words, pieces = PUBLISHED_SIZES["wikitext-103-words"], PUBLISHED_SIZES["gpt2-bpe"]
    decoder = published("vanilla", "decoder")
    with_words, with_pieces = (count_parameters(replace(decoder, vocab_size=size)) / 1e6 for size in (words, pieces))
    return Found(
        {
            "vocabulary in Table 13": said,
            "distinct words of WikiText-103's token files": words,
            "softmax decoder on the words (M)": with_words,
            "the same on GPT-2's pieces (M)": with_pieces,
            "Table 4 (M)": printed("decoder", "Vanilla"),
        },
        {
            "the printed number is the number of words": said == words,
            "only with the words is the count Table 4's": fits(with_words, printed("decoder", "Vanilla"))
            and not fits(with_pieces, printed("decoder", "Vanilla")),
        },
        (Effect("parameters of the softmax decoder (M)", with_words, with_pieces),),
    )


@check("tied-embedding")
def tied_embedding() -> Found:
    tied, untied = (millions("transnormer-t2", "decoder", tied=tied) for tied in (True, False))
    four = printed("decoder", "TransNormer T2")
    return Found(
        {"output tied to the embedding (M)": tied, "a matrix of its own (M)": untied, "Table 4 (M)": four},
        {"only the tied model has Table 4's count": fits(tied, four) and not fits(untied, four)},
        (Effect("parameters of T2's decoder (M)", tied, untied),),
    )


@check("linear-parameters")
def linear_parameters() -> Found:
    ours, theirs, vanilla = (
        millions("linear", "encoder"),
        printed("encoder", "1+elu"),
        printed("encoder", "Vanilla"),
    )
    return Found(
        {"1+elu's encoder (M)": ours, "Table 5, 1+elu (M)": theirs, "Table 5, softmax attention (M)": vanilla},
        {
            "the count is not the printed one": not fits(ours, theirs),
            "it is the one printed for softmax attention": fits(ours, vanilla),
        },
    )


@check("ls-output-bias")
def ls_output_bias() -> Found:
    with_bias, without = (millions("transformer-ls", "decoder", output_bias=bias) for bias in (True, False))
    four = printed("decoder", "LS")
    numbers = round((with_bias - without) * 1e6)
    return Found(
        {
            "with a bias on the logits (M)": with_bias,
            "without (M)": without,
            "Table 4, LS (M)": four,
            "numbers": numbers,
        },
        {
            "only with the bias is the count Table 4's": fits(with_bias, four) and not fits(without, four),
            "the bias has one number per word": numbers == PUBLISHED_SIZES["wikitext-103-words"],
        },
        (Effect("parameters of the LS decoder (M)", with_bias, without),),
    )


@check("flash-norms")
def flash_norms() -> Found:
    rows = {"flash": "FLASH", "flash-quad": "FLASH-quad"}
    layer, scale = ([millions(row, "encoder", norm=norm) for row in rows] for norm in ("layer", "scale"))
    five = [printed("encoder", name) for name in rows.values()]
    decoder = [millions(row, "decoder") for row in rows]
    four = [printed("decoder", name) for name in rows.values()]
    return Found(
        {
            "encoders with LayerNorm: FLASH, FLASH-quad (M)": layer,
            "encoders with ScaleNorm (M)": scale,
            "Table 5 (M)": five,
            "decoders with ScaleNorm (M)": decoder,
            "Table 4 (M)": four,
        },
        {
            "the encoders fit Table 5 with LayerNorm": all(map(fits, layer, five)),
            "they do not with ScaleNorm": not any(map(fits, scale, five)),
            "the decoders fit Table 4 with ScaleNorm": all(map(fits, decoder, four)),
        },
        (Effect("parameters of FLASH's encoder (M)", layer[0], scale[0]),),
    )


@check("flash-depth")
def flash_depth() -> Found:
    kinds: tuple[Kind, ...] = ("decoder", "encoder")
    said = {kind: settings.said("transnormer", "Section 5.1", MODELS[kind], "flash_layers") for kind in kinds}
    ours = {kind: published("flash-quad", kind).layers for kind in kinds}
    nearest = {kind: matching_flash_layers(kind) for kind in kinds}
    beyond = {kind: millions("flash-quad", kind) - millions("vanilla", kind) for kind in kinds}
    return Found(
        {
            "layers of FLASH and FLASH-quad as published": said,
            "parameters beyond softmax attention's (M)": beyond,
            "layers with which FLASH-quad comes nearest to softmax attention": nearest,
        },
        {
            "ours are as deep as published": ours == said,
            "in neither model is that the depth that comes nearest": all(said[kind] != nearest[kind] for kind in kinds),
        },
        tuple(Effect(f"layers of the {kind}", ours[kind], nearest[kind]) for kind in kinds),
    )


@check("lra-similar-size")
def lra_similar_size() -> Found:
    counts = arena.parameter_counts("image", "paper")
    against = {row: counts[row] / counts["transnormer-t2"] for row in counts}
    outside = {row: ratio for row, ratio in against.items() if abs(ratio - 1) > 0.1}
    return Found(
        {"T2 on Image": counts["transnormer-t2"], "times T2, where more than a tenth from it": outside},
        {
            "Linformer is 2.66 times as large as T2": abs(against["linformer"] - 2.66) < 0.01,
            "no other row is off": set(outside) == {"linformer"},
        },
    )
