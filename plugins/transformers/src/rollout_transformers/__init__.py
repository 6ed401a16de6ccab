"""The embedded backend: a small server around an unmodified Hugging Face model, for laptops and for tests."""
