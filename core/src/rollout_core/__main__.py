"""``python -m rollout_core`` is the command ``rollout``."""

from rollout_core.cli import main

if __name__ == "__main__":
    main()
