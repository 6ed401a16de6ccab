"""The embedded inference server: continuous batching over an unmodified Hugging Face causal language model.

Started as `python -m rollout_transformers.engine`. The hook side of the plugin never imports this package, because
it needs torch and transformers.
"""
