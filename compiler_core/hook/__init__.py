"""The PEP 523 frame hook: which code is compiled, where compiled code is kept, what failures are reported."""
