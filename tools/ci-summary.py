#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Add up what ran and end with the closing line: "N passed, N failed, N skipped".

Arguments: Meson's testlog.json files, and files of our own checks with one line each: "pass NAME", "fail NAME" or
"skip NAME: REASON". TAP tests count by their points, others as one. Exits 1 when anything failed, when nothing ran, or
when something was skipped for another reason than a missing GPU or CUDA toolkit: those are all that a test may lack.
"""

import json
import re
import sys

MAY_LACK = re.compile(r"needs (a GPU|(the headers of )?the CUDA ([0-9.]+ )?toolkit)\b")
POINT = re.compile(r"^(not )?ok\b(?:[^#\\]|\\.)*(?:#\s*(skip|todo)\S*\s*(.*))?$", re.IGNORECASE)
SKIP_ALL = re.compile(r"^1\.\.0\s*#\s*skip\S*\s*(.*)$", re.IGNORECASE | re.MULTILINE)


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def skip(self, name, reason):
        self.skipped.append((name, reason or "no reason given"))

    def wrong_skips(self):
        return [s for s in self.skipped if not MAY_LACK.search(s[1])]


def add_tap(tally, name, text, good):
    failed = 0
    for line in text.splitlines():
        point = POINT.match(line)
        if not point:
            continue
        if (point.group(2) or "").lower() == "skip":
            tally.skip(name, point.group(3))
        elif point.group(1) and (point.group(2) or "").lower() != "todo":
            tally.failed.append(f"{name}: {line}")
            failed += 1
        else:
            tally.passed += 1
    if not good and not failed:
        tally.failed.append(f"{name}: ended wrongly (a crash, a timeout or too few tests)")


def add_meson(tally, path):
    with open(path, encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            name, result = test["name"], test["result"]
            text = test.get("stdout") or ""
            if result in ("OK", "FAIL", "ERROR") and re.search(r"^1\.\.[1-9]", text, re.M):
                add_tap(tally, name, text, result == "OK")
            elif result == "SKIP":
                whole = SKIP_ALL.search(text) or re.search(r"#\s*skip\S*\s*(.*)", text, re.I)
                lines = text.strip().splitlines()
                tally.skip(name, whole.group(1) if whole else (lines[-1] if lines else ""))
            elif result in ("OK", "EXPECTEDFAIL"):
                tally.passed += 1
            else:
                tally.failed.append(f"{name}: {result}")


def add_checks(tally, path):
    with open(path, encoding="utf-8") as log:
        for line in log:
            verdict, _, rest = line.strip().partition(" ")
            if verdict == "pass":
                tally.passed += 1
            elif verdict == "skip":
                name, _, reason = rest.partition(": ")
                tally.skip(name, reason)
            elif verdict:
                tally.failed.append(rest or line.strip())


def main(paths):
    tally = Tally()
    for path in paths:
        try:
            (add_meson if path.endswith(".json") else add_checks)(tally, path)
        except (OSError, ValueError, KeyError) as error:
            tally.failed.append(f"{path}: {error}")
    for name in tally.failed:
        print(f"failed: {name}")
    for name, reason in tally.skipped:
        print(f"skipped: {name}: {reason}")
    wrong = tally.wrong_skips()
    for name, _ in wrong:
        print(f"not allowed: the skip of {name}, which needs neither a GPU nor the CUDA toolkit")
    total = tally.passed + len(tally.failed) + len(tally.skipped)
    if not total:
        print("nothing ran")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed or wrong or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
