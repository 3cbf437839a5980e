# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the tree, and the way to report."""

import os
import subprocess
import sys

ROOT = os.environ.get("AQ_CHECK_ROOT") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tree_files(*suffixes):
    """Tracked and new files of the tree, without what git ignores, by path relative to the root."""
    try:
        names = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive, or no git
        names = []
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if not f.startswith((".git", "build"))]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(n for n in names
                  if n and (not suffixes or n.endswith(suffixes)) and os.path.isfile(os.path.join(ROOT, n)))


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def finish(problems, looked_at, what):
    """Print the problems, one a line. Having looked at nothing is a failure too."""
    for problem in problems:
        print(problem)
    if not looked_at:
        print(f"no {what} found: the check checked nothing")
    if problems or not looked_at:
        sys.exit(1)
    print(f"{looked_at} {what}")
