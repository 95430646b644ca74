"""The speed of the kernels against every installed public peer, on this machine, in one run.

``python -m transnormer_kernels.bench [--only CASE] [--quick] [--repeats N] [--json FILE] [--resume]`` needs torch,
triton and numpy only. ``cases`` are the operations measured, ``contestants`` the implementations, ``floors`` the ideal
times; ``errors`` checks results, ``timing`` times calls, ``run`` runs everything, ``results`` stores it.

The result, as ``--json`` writes it:

    schema                 1
    device, kind           name of the GPU or processor; "cuda" or "cpu"
    capability, driver     of the GPU, as "9.0" and "580.82.07"; null on a CPU
    l2_bytes, threads      the GPU's L2 cache; PyTorch's threads on the CPU
    versions               {"python", "cuda", "torch", "triton", "numpy", each peer}; null where not installed
    commit, date           of this code, with "-dirty" if it was changed, or null; ISO 8601 in UTC
    quick, repeats         whether lengths were cut (then the times are no result); timed stretches per row
    copy_bytes_per_second  bytes read plus bytes written, by a copy or a product, whichever is faster, in this run
    seconds                the whole run, resumed parts included
    cases                  a list of
        name, dtype        as --only selects it; as PyTorch calls it
        shape              {"B", "N", "H", "D"}: batch, length, heads, head dimension
        options            operation ("norm", "diag", "step"), backward, causal, norm, eps, eps_placement, rotated, and
                           phi, or block_size and scores
        tensors, bytes     the fewest bytes that can be moved, by tensor and in total
        floor_seconds      bytes / copy_bytes_per_second
        aim_of_floor       the target for floor time / our time, or null
        comparisons        a list of {"against": names, "fastest": the fastest correct one of them or null,
                           "ratio": its median / ours or null, "aim": the ratio aimed at}
        rows               a list, one per contestant:
            name           "transnormer" is this package
            status         "measured"; "wrong" (an error beyond its bound); "failed" (it raised); "left out"
            reason         why it is not "measured", else null
          unless failed or left out also
            computes       what it computes instead of the case's function, {} if the same
            errors, bounds of "o", "dq", "dk", "dv", "dtheta", "state": errors relative to float64, null if missing or
                           not finite; the bounds follow from the dtype's own error on the same inputs
            worst          the tensor whose error is largest relative to its bound
            checked_shape  the shape at which errors were measured
            times          seconds per call of every repeat
            seconds        {"min", "median", "max"} of them
            how, note      "cuda graph", "events" (why, in note) or "clock"
            of_floor       floor_seconds / median
"""
