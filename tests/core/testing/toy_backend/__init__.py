"""A toy backend that keeps every rule, and variants of it that each break one."""
