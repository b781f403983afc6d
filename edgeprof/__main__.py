"""``python -m edgeprof``, for when the script is not on PATH."""

from edgeprof.cli import main

if __name__ == "__main__":
    main()
