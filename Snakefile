# Runs stale notebooks, and before them the training runs they lack: in parallel here, or on a cluster
# (`transnormer report -- --executor slurm --jobs 50`). Started by `transnormer report`, which writes the plan that is
# this workflow's config (transnormer_lib/report/pipeline.py). Stamps are all that Snakemake owns: it deletes the
# outputs of failed jobs, and an executed notebook must survive a failed attempt to make it anew.
#
# `transnormer sweep` makes the target `sweep`: one job per training run, after the run that it starts from.

STAMPS = config.get("stamps", f"reports/{config['preset']}/.stamps")
JOBS = config.get("jobs", {})
RUNS = config.get("runs", {})
# The shares whose runs start from those of another share.
LATER = "|".join(name for name, share in config.get("shares", {}).items() if share["after"]) or "none"
OPTIONS = "--root {config[root]:q} --preset {config[preset]:q}"


wildcard_constraints:
    notebook=r"\d\d_\w+",
    share=r"\d+",
    run=r"[\w.-]+",


rule all:
    input:
        expand(f"{STAMPS}/{{notebook}}", notebook=JOBS),


# A share that fails is left to the notebook: it asks the store for the same run, meets the same error and reports it.
rule share:
    wildcard_constraints:
        share=rf"(?!(?:{LATER})$)\d+",
    input:
        lambda wildcards: [f"{STAMPS}/shares/{share}" for share in config["shares"][wildcards.share]["after"]],
    output:
        touch(f"{STAMPS}/shares/{{share}}"),
    params:
        runs=lambda wildcards: [f"{notebook}:{number}" for notebook, number in config["shares"][wildcards.share]["runs"]],
    resources:
        gpu=int(config["gpu"]),
    shell:
        "{config[python]:q} -m transnormer_lib.report.share " + OPTIONS + " {params.runs:q}"
        " || echo 'share {wildcards.share} failed' >&2"


# Before the notebooks, as soon as what they start from is there: else these runs are made one by one at the end.
use rule share as share_after with:
    wildcard_constraints:
        share=LATER,
    priority: 2


rule notebook:
    input:
        lambda wildcards: [
            f"{STAMPS}/shares/{share}" for share in JOBS[wildcards.notebook]["shares"]
        ],
    output:
        touch(f"{STAMPS}/{{notebook}}"),
    params:
        digest=lambda wildcards: JOBS[wildcards.notebook]["digest"],
    # Before further shares, as soon as its own are there: else long notebooks are left to run alone at the end.
    priority: 1
    resources:
        gpu=int(config["gpu"]),
    shell:
        # exec: a shell between Snakemake and the guard would die of a signal before the guard has written its record
        "exec {config[python]:q} -m transnormer_lib.report.guard " + OPTIONS + " {wildcards.notebook:q}"


rule sweep:
    input:
        expand(f"{STAMPS}/{{run}}.run", run=RUNS),


# The run store decides whether there is anything to train; a run that diverges is a result.
rule training:
    input:
        lambda wildcards: [f"{STAMPS}/{run}.run" for run in RUNS[wildcards.run]["after"]],
    output:
        touch(f"{STAMPS}/{{run}}.run"),
    params:
        file=lambda wildcards: RUNS[wildcards.run]["file"],
    threads: config.get("processes", 1)
    resources:
        gpu=int(config["gpu"]),
    shell:
        # exec: the run itself hears of an interruption and writes a checkpoint
        "exec env {config[environment]} {config[launcher]} -m transnormer_lib.training --accept-divergence"
        " --store {config[store]:q} {params.file:q}"
