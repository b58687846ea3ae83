"""Work done when the extension is loaded: background imports (`warmup`), and a trial compile on versions of Python or
PyTorch that the tests do not cover (`version_trial`)."""
