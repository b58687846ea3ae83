"""What a rank of a distributed job did: its `collectives`, in their order."""
