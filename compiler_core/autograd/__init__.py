"""Forward and backward: the joint graph, its partition, and the autograd function around both."""
