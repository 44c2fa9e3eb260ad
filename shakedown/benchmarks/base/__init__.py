"""What all benchmarks share: the contract, and what metrics functions yield."""
