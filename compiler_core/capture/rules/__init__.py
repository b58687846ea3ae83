"""What calls and operators do to symbolic values."""
