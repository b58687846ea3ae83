"""Changes of the user's code that remove a problem: made from the code at its line, tried, and offered if they help."""
