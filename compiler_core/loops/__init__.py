"""The loop IR: its definition, lowering to it, schedules and fusion."""
