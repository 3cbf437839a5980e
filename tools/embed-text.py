#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Put a text file into a C header: embed-text.py NAME INPUT OUTPUT makes `static const char NAME[]`."""

import sys


def main(name, source, target):
    with open(source, encoding="ascii") as f:
        lines = f.read().split("\n")
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") for line in lines]
    with open(target, "w", encoding="ascii") as f:
        f.write(f"/* Made from {source.rsplit('/', 1)[-1]} by tools/embed-text.py; do not edit. */\n")
        f.write(f"static const char {name}[] =\n")
        f.write("\n".join(f'\t"{line}\\n"' for line in escaped) + ";\n")


main(*sys.argv[1:])
