"""What the steps of a pipeline do to rows. `datasets` gives them the methods by which further steps are added."""
