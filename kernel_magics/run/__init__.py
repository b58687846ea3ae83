"""Running a cell through the compiler, through stock torch.compile, or both."""
