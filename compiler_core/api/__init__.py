"""What users call: compile and explain functions, and measure, check and export what a record holds."""
