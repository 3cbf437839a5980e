#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen.py on small tables: what it makes of good ones, and that it sees what is wrong with bad ones. Usage: test-gen.py SRC"""

import os
import subprocess
import sys
import tempfile
import unittest

SRC = sys.argv.pop(1)
GOOD = """\
# a comment
cuA|cuA|2000|none|copy|modelled|CUresult(int, const void *)
cuA_ptds|cuA|7000|ptds|copy|twin|=
cuA_v2|cuA|3020|none|copy|refused|CUresult(void)
cuB|cuB|2000|none|other|accepted|CUresult(CUstream *)
"""


def run(table, *args):
    """(exit status, what it wrote, what it complained about)"""
    with tempfile.TemporaryDirectory() as work:
        path, out = os.path.join(work, "t.tbl"), os.path.join(work, "out")
        with open(path, "w", encoding="utf-8") as f:
            f.write(table)
        more = [os.path.join(work, a[1:]) if a.startswith("@") else a for a in args[1:]]
        for a in args[1:]:
            if a == "@lib.c":
                with open(os.path.join(work, "lib.c"), "w", encoding="utf-8") as f:
                    f.write("AQ_EXPORT CUresult cuA(int a,\n\t\tconst void *b)\n{\n}\nCUresult cuC(void)\n{\n}\n")
        argv = [sys.executable, os.path.join(SRC, "api", "gen.py"), args[0], path]
        argv += more or ([out] if not args[0].startswith("check") else [])
        done = subprocess.run(argv, capture_output=True, text=True)
        text = ""
        if os.path.exists(out):
            with open(out, encoding="utf-8") as f:
                text = f.read()
        return done.returncode, text, done.stderr


class Generate(unittest.TestCase):
    def test_map(self):
        _, text, _ = run(GOOD, "cuda-map")
        self.assertIn("\tcuA_ptds;\n", text)
        self.assertTrue(text.endswith("local:\n\t*;\n};\n"))

    def test_stubs(self):
        _, text, _ = run(GOOD, "cuda-stubs")
        self.assertNotIn("CUresult cuA(", text)  # written by hand
        self.assertIn("CUresult cuA_ptds(int p0, const void *p1)\n{\n\tint saved = aq_fe_ptds;", text)
        self.assertIn("result = cuA(p0, p1);", text)
        self.assertIn('return aq_fe_refuse("cuA_v2");', text)
        self.assertIn('return aq_fe_accept("cuB");', text)

    def test_refused_plain_has_a_refused_twin(self):
        _, text, _ = run(GOOD.replace("modelled", "refused"), "cuda-stubs")
        self.assertIn('CUresult cuA_ptds(int p0, const void *p1)\n{\n\treturn aq_fe_refuse("cuA");', text)

    def test_procs_are_in_the_order_of_the_search(self):
        _, text, _ = run(GOOD, "cuda-procs")
        rows = [line.split('"')[3] for line in text.splitlines() if line.startswith("\t{")]
        self.assertEqual(rows, ["cuA", "cuA_v2", "cuA_ptds", "cuB"])

    def test_entries(self):
        _, text, _ = run(GOOD, "cuda-entries")
        self.assertIn('{ "cuA_ptds", AQ_API_MODELLED }', text)


class Check(unittest.TestCase):
    def refuse(self, table, complaint):
        status, _, err = run(table, "check")
        self.assertEqual(status, 1)
        self.assertIn(complaint, err)

    def test_good(self):
        self.assertEqual(run(GOOD, "check")[0], 0)

    def test_twice(self):
        self.refuse(GOOD + GOOD.splitlines()[-1] + "\n", "out of order or twice")

    def test_order(self):
        self.refuse("\n".join(reversed(GOOD.splitlines())) + "\n", "out of order")

    def test_twin_of_nothing(self):
        self.refuse(GOOD.replace("cuA_ptds", "cuAx_ptds"), "which the table lacks")

    def test_twin_by_name_only(self):
        self.refuse(GOOD.replace("ptds|copy|twin|=", "none|copy|refused|CUresult(void)"), "is a twin by its name")

    def test_status(self):
        self.refuse(GOOD.replace("accepted", "perhaps"), "status perhaps")

    def test_class(self):
        self.refuse(GOOD.replace("|other|", "|misc|"), "class misc")

    def test_fields(self):
        self.refuse(GOOD + "cuC|refused\n", "2 fields")

    def test_same_version(self):
        self.refuse(GOOD.replace("3020", "2000"), "cannot be told from")

    def test_type(self):
        self.refuse(GOOD.replace("CUresult(void)", "CUresult"), "no function type")

    def test_sources(self):
        status, _, err = run(GOOD + "cuC|cuC|2000|none|other|refused|CUresult(void)\n", "check-sources", "@lib.c")
        self.assertEqual(status, 1)
        self.assertIn("cuC is defined, but the table does not say modelled", err)
        self.assertNotIn("cuA", err)
        status, _, err = run(GOOD.replace("accepted", "modelled"), "check-sources", "@lib.c")
        self.assertIn("cuB is modelled by the table, but defined nowhere", err)


if __name__ == "__main__":
    unittest.main()
