#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print, NUL-separated, the commands that let gcc's analyzer look at every source in src/: analyze-leaks.py BUILD."""

import json
import os
import shlex
import sys

import aqtools

with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as f:
    entries = json.load(f)
seen = set()
for entry in entries:
    name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), aqtools.ROOT)
    if not name.startswith("src/") or not name.endswith(".c") or name in seen:
        continue
    seen.add(name)
    keep = [a for a in shlex.split(entry["command"])[1:] if a.startswith(("-I", "-D", "-std"))]
    command = ["gcc", *keep, "-U_FORTIFY_SOURCE", "-O2", "-fanalyzer", "-Wno-analyzer-use-of-uninitialized-value",
               "-fdiagnostics-plain-output", "-c", "-o", "/dev/null", entry["file"]]
    sys.stdout.write(f"cd {shlex.quote(entry['directory'])} && {shlex.join(command)}\0")
if not seen:
    sys.exit("no source of src/ in compile_commands.json")
