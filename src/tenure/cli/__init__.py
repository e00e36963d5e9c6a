"""The `tenure` command."""

try:
    from tenure.cli.main import main
except KeyboardInterrupt:
    # All that the command needs takes a moment to be imported. Whoever changes their mind meanwhile wants no traceback.
    raise SystemExit(130) from None

__all__ = ["main"]
