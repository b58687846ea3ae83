"""What happens when the extension is loaded: imports, and the trial on untested versions."""
