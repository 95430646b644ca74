"""Checks on model sizes: what the parameter counts of Tables 4 and 5 decide."""

from dataclasses import replace

from transnormer_lib.data.vocabulary import PUBLISHED_SIZES
from transnormer_lib.models.architectures import published
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.studies.lra import results as arena
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import millions, said
from transnormer_lib.studies.what_the_paper_leaves_out.table_13 import MODELS, fits, matching_flash_layers, printed


@check("glu-widths-swapped")
def glu_widths() -> Found:
    widths = [said("Table 13", model, "glu") for model in MODELS.values()]
    target = [printed(kind, "TransNormer T2") for kind in MODELS]
    swapped, as_printed = (
        [millions("transnormer-t2", kind, hidden=width) for kind, width in zip(MODELS, order, strict=True)]
        for order in (widths[::-1], widths)
    )
    return Found(
        {
            "parameters of T2's decoder and encoder in Tables 4 and 5 (M)": target,
            f"with GLU widths {widths[1]:,} and {widths[0]:,}, exchanged (M)": swapped,
            f"with {widths[0]:,} and {widths[1]:,}, as printed (M)": as_printed,
        },
        {
            "with the widths exchanged, both counts are the printed ones": all(map(fits, swapped, target)),
            "with the widths as printed, neither count is": not any(map(fits, as_printed, target)),
        },
        tuple(
            Effect(f"parameters of the {kind} (M)", *counts)
            for kind, *counts in zip(MODELS, swapped, as_printed, strict=True)
        ),
    )


@check("tokenizer")
def tokenizer() -> Found:
    stated, target = said("Table 13", "autoregressive", "vocabulary"), printed("decoder", "Vanilla")
    words, pieces = PUBLISHED_SIZES["wikitext-103-words"], PUBLISHED_SIZES["gpt2-bpe"]
    decoder = published("vanilla", "decoder")
    counts = [count_parameters(replace(decoder, vocab_size=size)) / 1e6 for size in (words, pieces)]
    return Found(
        {
            "vocabulary in Table 13": stated,
            "distinct words in WikiText-103's token files": words,
            "softmax decoder with these words, with GPT-2's BPE (M)": counts,
            "Table 4 (M)": target,
        },
        {
            "the printed number is the number of words": stated == words,
            "only the words give Table 4's count": [fits(count, target) for count in counts] == [True, False],
        },
        (Effect("parameters of the softmax decoder (M)", *counts),),
    )


@check("tied-embedding")
def tied_embedding() -> Found:
    tied, untied = (millions("transnormer-t2", "decoder", tied=tied) for tied in (True, False))
    four = printed("decoder", "TransNormer T2")
    return Found(
        {"output tied to the embedding (M)": tied, "separate output matrix (M)": untied, "Table 4 (M)": four},
        {"only the tied model has Table 4's count": fits(tied, four) and not fits(untied, four)},
        (Effect("parameters of T2's decoder (M)", tied, untied),),
    )


@check("linear-parameters")
def linear_parameters() -> Found:
    ours = millions("linear", "encoder")
    theirs, vanilla = (printed("encoder", name) for name in ("1+elu", "Vanilla"))
    return Found(
        {"1+elu's encoder (M)": ours, "Table 5, 1+elu (M)": theirs, "Table 5, softmax attention (M)": vanilla},
        {
            "the count differs from the one printed for 1+elu": not fits(ours, theirs),
            "it is the one printed for softmax attention": fits(ours, vanilla),
        },
    )


@check("ls-output-bias")
def ls_output_bias() -> Found:
    with_bias, without = (millions("transformer-ls", "decoder", output_bias=bias) for bias in (True, False))
    four, numbers = printed("decoder", "LS"), round((with_bias - without) * 1e6)
    return Found(
        {
            "with and without a bias on the logits (M)": [with_bias, without],
            "Table 4, LS (M)": four,
            "parameters of the bias": numbers,
        },
        {
            "only with the bias does the count match Table 4": fits(with_bias, four) and not fits(without, four),
            "the bias has one parameter per word": numbers == PUBLISHED_SIZES["wikitext-103-words"],
        },
        (Effect("parameters of the LS decoder (M)", with_bias, without),),
    )


@check("flash-norms")
def flash_norms() -> Found:
    rows = {"flash": "FLASH", "flash-quad": "FLASH-quad"}
    layer, scale = ([millions(row, "encoder", norm=norm) for row in rows] for norm in ("layer", "scale"))
    decoder = [millions(row, "decoder") for row in rows]
    four, five = ([printed(kind, name) for name in rows.values()] for kind in MODELS)
    return Found(
        {
            "encoders of FLASH and FLASH-quad with LayerNorm (M)": layer,
            "with ScaleNorm (M)": scale,
            "Table 5 (M)": five,
            "decoders with ScaleNorm (M)": decoder,
            "Table 4 (M)": four,
        },
        {
            "with LayerNorm the encoders match Table 5": all(map(fits, layer, five)),
            "with ScaleNorm they do not": not any(map(fits, scale, five)),
            "with ScaleNorm the decoders match Table 4": all(map(fits, decoder, four)),
        },
        (Effect("parameters of FLASH's encoder (M)", layer[0], scale[0]),),
    )


@check("flash-depth")
def flash_depth() -> Found:
    stated = {kind: said("Section 5.1", model, "flash_layers") for kind, model in MODELS.items()}
    ours = {kind: published("flash-quad", kind).layers for kind in MODELS}
    nearest = {kind: matching_flash_layers(kind) for kind in MODELS}
    return Found(
        {
            "published layers of FLASH and FLASH-quad": stated,
            "parameters of FLASH-quad minus those of softmax attention (M)": {
                kind: millions("flash-quad", kind) - millions("vanilla", kind) for kind in MODELS
            },
            "layers at which FLASH-quad's count is nearest to softmax attention's": nearest,
        },
        {
            "our models have the published depth": ours == stated,
            "in neither model is it the nearest depth": all(stated[kind] != nearest[kind] for kind in MODELS),
        },
        tuple(Effect(f"layers of the {kind}", ours[kind], nearest[kind]) for kind in MODELS),
    )


@check("lra-similar-size")
def lra_similar_size() -> Found:
    counts = arena.parameter_counts("image", "paper")
    against = {row: count / counts["transnormer-t2"] for row, count in counts.items()}
    outside = {row: ratio for row, ratio in against.items() if abs(ratio - 1) > 0.1}
    return Found(
        {"parameters of T2 on Image": counts["transnormer-t2"], "rows that differ by over a tenth, times T2": outside},
        {
            "Linformer is 2.66 times as large as T2": abs(against["linformer"] - 2.66) < 0.01,
            "every other row is within a tenth of T2": set(outside) == {"linformer"},
        },
    )
