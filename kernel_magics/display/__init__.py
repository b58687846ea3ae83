"""What is shown and saved of a record: the explorer, the summary, the report, files."""
