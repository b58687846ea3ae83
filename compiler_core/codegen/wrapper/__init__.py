"""The Python function around the kernels: memory plan, allocation, launches, inputs."""
