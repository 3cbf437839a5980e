#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare what src/api declares of the CUDA driver API with the toolkit's own header, where one is installed.

Two programs are made of the same list of questions (the value of each constant, the size and alignment of each type, the
place and size of each member), one including our headers, one including cuda.h; their answers must be the same. A third
file includes cuda.h and declares every function of cuda.tbl again with the table's type: the compiler accepts that only
when the types agree. The names of the table are those that the toolkit's stub library exports.

Usage: check-toolkit.py SRC, where SRC is the source directory that holds api/. The toolkit is looked for in $CUDA_HOME, then
/usr/local/cuda and /usr/local/cuda-13.0. Exits 77 when there is none.
"""

import os
import re
import subprocess
import sys
import tempfile

HEADERS = ("cuda_enums.h", "cuda_handles.h", "cuda_structs.h", "cuda_abi.h")
VERSION = "13000"
# cuda.h leaves the types of CUDA 2's entry points to those who ask.
OLD_TYPES = "#define __CUDA_API_VERSION_INTERNAL\n"


def toolkit():
    homes = [os.environ["CUDA_HOME"]] if os.environ.get("CUDA_HOME") else ["/usr/local/cuda", "/usr/local/cuda-13.0"]
    for home in homes:
        include = os.path.join(home, "include")
        try:
            with open(os.path.join(include, "cuda.h"), encoding="utf-8") as f:
                if re.search(rf"#define\s+CUDA_VERSION\s+{VERSION}\b", f.read()):
                    return include
        except OSError:
            pass
    return None


def matching(text, start):
    """Position of the brace that closes the one at start."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise SystemExit("unbalanced braces in our headers")


def members(body):
    """Paths of all members of a struct or union body, those of nested ones included."""
    paths, i = [], 0
    while i < len(body):
        m = re.compile(r"\s*(struct|union)\s*\{").match(body, i)
        if m:
            end = matching(body, m.end() - 1)
            inner = members(body[m.end() : end])
            stop = body.index(";", end)
            name = body[end + 1 : stop].strip()
            paths += [f"{name}.{p}" for p in inner] + [name] if name else inner
            i = stop + 1
            continue
        stop = body.find(";", i)
        if stop < 0:
            break
        for one in body[i:stop].split(","):
            one = re.sub(r"\[.*", "", one)
            name = re.search(r"(\w+)\s*$", one)
            if name:
                paths.append(name[1])
        i = stop + 1
    return paths


def questions(src):
    """C lines that print one fact each, about everything that our headers declare."""
    constants, types, places = [], [], []
    for header in HEADERS:
        with open(os.path.join(src, "api", header), encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        constants += [m for m in re.findall(r"^\s*#define\s+(CU\w+)\s", text, re.M)]
        i = 0
        while m := re.compile(r"typedef\s+(enum|struct|union)\s*\{").search(text, i):
            end = matching(text, m.end() - 1)
            body, stop = text[m.end() : end], text.index(";", end)
            names = [n.strip() for n in text[end + 1 : stop].split(",")]
            types += names
            if m[1] == "enum":
                constants += re.findall(r"(\w+)\s*=", body)
            else:
                places += [(names[0], p) for p in members(body)]
            i = stop
        types += re.findall(r"^typedef[^{}();]*?(\w+);", text, re.M)
        types += re.findall(r"^typedef[^{};]*?\(\*(\w+)\)\(", text, re.M)
    lines = [f'C("{c}", {c})' for c in constants]
    lines += [f'T("{t}", {t})' for t in types]
    lines += [f'M("{t}.{p}", {t}, {p})' for t, p in places]
    return lines


PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#define C(text, value) printf("%s = %lld\\n", text, (long long)(value));
#define T(text, type) printf("%s: %zu bytes, aligned to %zu\\n", text, sizeof(type), _Alignof(type));
#define M(text, type, member) printf("%s: at %zu, %zu bytes\\n", text, offsetof(type, member), sizeof(((type *)0)->member));
int main(void)
{
"""


def cc(args):
    compiler = os.environ.get("CC", "cc").split()
    done = subprocess.run(compiler + ["-std=gnu17", "-w"] + args, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return done.returncode == 0


def answers(work, name, head, include, lines):
    source, program = os.path.join(work, name + ".c"), os.path.join(work, name)
    with open(source, "w", encoding="utf-8") as f:
        f.write(head + PROGRAM + "\n".join(lines) + "\nreturn 0;\n}\n")
    if not cc([f"-I{include}", source, "-o", program]):
        raise SystemExit(f"{name}: does not compile")
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def table(src):
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(src, "api"))
    import gen

    return gen, gen.read(os.path.join(src, "api", "cuda.tbl"))


def check_types(src, work, include):
    gen, rows = table(src)
    source = os.path.join(work, "types.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write(OLD_TYPES + "#include <cuda.h>\n#include <cudaProfiler.h>\n")
        f.writelines(gen.declare(r, named=False) + ";\n" for r in rows if not r.is_twin)
    if not cc([f"-I{include}", "-fsyntax-only", source]):
        raise SystemExit("a type in cuda.tbl is not that of cuda.h")
    # The compiler sees a difference only where cuda.h declares the function at all.
    with open(source, "w", encoding="utf-8") as f:
        f.write(OLD_TYPES + "#include <cuda.h>\n#include <cudaProfiler.h>\nvoid *all[] = {\n")
        f.writelines(r.symbol + ",\n" for r in rows if not r.is_twin)
        f.write("};\n")
    if not cc([f"-I{include}", "-fsyntax-only", source]):
        raise SystemExit("cuda.tbl has a function that cuda.h does not declare")
    return sum(not r.is_twin for r in rows)


def check_stub(src, include):
    stub = os.path.join(include, "..", "lib", "stubs", "libcuda.so")
    if not os.path.exists(stub):
        stub = os.path.join(include, "..", "lib64", "stubs", "libcuda.so")
    if not os.path.exists(stub):
        return "the stub library is not installed"
    gen, rows = table(src)
    bad = gen.check_names(rows, stub)
    if bad:
        raise SystemExit("\n".join(bad))
    return f"its stub library exports the {len(rows)} names of the table"


def main(src):
    include = toolkit()
    if not include:
        print("skipped: needs the headers of the CUDA 13.0 toolkit")
        return 77
    lines = questions(src)
    with tempfile.TemporaryDirectory() as work:
        ours = answers(work, "ours", '#include "api/cuda_abi.h"\n', src, lines)
        theirs = answers(work, "theirs", OLD_TYPES + "#include <cuda.h>\n#include <cudaProfiler.h>\n", include, lines)
        different = [(a, b) for a, b in zip(ours, theirs) if a != b]
        for a, b in different:
            print(f"ours {a}, theirs {b}", file=sys.stderr)
        if different or len(ours) != len(lines) or len(theirs) != len(lines):
            return 1
        functions = check_types(src, work, include)
    print(f"{len(lines)} facts and {functions} function types are those of {include}/cuda.h; {check_stub(src, include)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
