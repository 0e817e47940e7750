"""Passes: functions from Graph to Graph, and the pipeline that runs them."""
