"""``rollout run``: draws samples for a file of prompts and writes them to a folder.

``prompt_file`` reads, ``job`` draws, ``sink`` writes; ``setup`` checks everything first, ``session`` puts it together.
"""
