"""What all parts of the data pipeline share."""
