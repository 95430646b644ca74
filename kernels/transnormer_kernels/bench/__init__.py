"""The speed of the kernels against every public peer that is installed, on this machine, in one run.

``python -m transnormer_kernels.bench [--only CASE] [--quick] [--repeats N] [--json FILE] [--resume]`` needs torch,
triton and numpy alone. ``cases`` says what is measured, ``contestants`` who takes part, ``floors`` what the ideal is,
``errors`` who is right, ``timing`` how time is taken, ``run`` does it, ``results`` keeps it.

The result, as ``--json`` writes it:

    schema                 1
    device, kind           name of the GPU or processor; "cuda" or "cpu"
    capability, driver     of the GPU, as "9.0" and "580.82.07"; null on a CPU
    l2_bytes, threads      the GPU's L2 cache; PyTorch's threads on the CPU
    versions               {"python", "cuda", "torch", "triton", "numpy", each peer}; null where not installed
    commit, date           of this code, with "-dirty" where it was changed, or null; ISO 8601 in UTC
    quick, repeats         whether lengths were cut (then nothing here is a result); timed stretches per row
    copy_bytes_per_second  the device's own copy, bytes read plus bytes written, measured in this run
    seconds                the whole run, resumed parts included
    cases                  a list of
        name, dtype        as --only selects it; as PyTorch calls it
        shape              {"B", "N", "H", "D"}: batch, length, heads, head dimension
        options            operation ("norm", "diag", "step"), backward, causal, norm, eps, eps_placement, rotated, and
                           phi, or block_size and scores
        tensors, bytes     the fewest bytes that can be moved, by tensor and together
        floor_seconds      bytes / copy_bytes_per_second
        aim_of_floor       the share of the floor that is aimed at, or null
        comparisons        a list of {"against": names, "fastest": the fastest right one of them or null,
                           "ratio": its median / ours or null, "aim": the ratio aimed at}
        rows               a list, one per contestant:
            name           "transnormer" is this package
            status         "measured"; "wrong" (an error beyond its bound); "failed" (it raised); "left out"
            reason         why it is not "measured", else null
          unless failed or left out also
            computes       what it computes instead of the case's function, {} if the same
            errors, bounds of "o", "dq", "dk", "dv", "dtheta", "state": relative to float64, null if missing or not
                           finite; and what the dtype excuses on the same inputs
            worst          the one that comes nearest to its bound, or exceeds it most
            checked_shape  at which errors were measured
            times          seconds per call of every repeat
            seconds        {"min", "median", "max"} of them
            how, note      "cuda graph", "events" (why, in note) or "clock"
            of_floor       floor_seconds / median
"""
