"""From a message to its answer: receive, admit, enqueue, claim, turn, agent, deliver.

The stations and their loops are in `pipeline.py`.
"""
