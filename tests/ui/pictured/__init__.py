"""The programs of the README's pictures, each alone in its file: the pane *Source* shows it from its first line."""
