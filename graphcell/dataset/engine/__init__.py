"""Datasets, the steps of a pipeline, samplers and iterators."""
