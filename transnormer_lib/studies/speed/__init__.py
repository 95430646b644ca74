READS = ("reports/benchmarks/*.json",)
