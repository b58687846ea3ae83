"""From a captured graph to a callable: backends by name, kernels, CUDA graphs, the graph cache."""
