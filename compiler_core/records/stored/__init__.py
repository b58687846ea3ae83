"""The parts of a record that are stored elsewhere while nobody uses them: `large_fields`."""
