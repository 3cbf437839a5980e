#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make C and linker input of the API tables, check them, and change the status of names.

  gen.py VERB TABLE OUTPUT          cuda-map cuda-protos cuda-stubs cuda-procs cuda-entries
                                    nvml-map nvml-protos nvml-stubs nvml-entries
  gen.py shim-VERB TABLE EXTRA OUTPUT SOURCE...   for a stand-in whose SOURCEs define the wrappers: map asm slots names procs
  gen.py mark STATUS NAME...        set the status of plain names in cuda.tbl or nvml.tbl (which, by their prefix)
  gen.py check TABLE                the table in itself
  gen.py check-stub TABLE LIBRARY   against the names that a driver (stub) library exports
  gen.py check-sources TABLE DIR..  each modelled name is defined once, no other is
  gen.py check-exports TABLE LIB    our library exports these names and no other
  gen.py check-shim TABLE PASSES DIR..  each name that could take device memory is wrapped, or listed in PASSES with a reason

Runs at build time only; standard library only.
"""

import fcntl
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STATUSES = ("modelled", "accepted", "refused")
CLASSES = ("alloc free launch copy query view ctx module stream event graph ipc vmm pool other").split()
DEFINITION = re.compile(
    r"^(?:AQ_EXPORT\s+)?(?:CUresult|nvmlReturn_t|const char \*)\s*\b((?:cu|nvml)\w+)\s*\([^;{]*\)\s*\{", re.M
)
HEAD = "/* Made by src/api/gen.py; do not edit. */\n"


class Row:
    """One entry point. NVML has no twins and no versions to choose from: the fields are empty there."""

    def __init__(self, where, fields):
        self.where = where
        if len(fields) == 7:
            self.symbol, self.base, since, self.stream, self.cls, self.status, self.type = fields
            self.since = int(since)
        elif len(fields) == 3:
            self.symbol, self.status, self.type = fields
            self.base, self.since, self.stream, self.cls = self.symbol, 0, "none", "query"
        else:
            raise SystemExit(f"{where}: {len(fields)} fields, expected 7 (cuda) or 3 (nvml)")

    @property
    def is_twin(self):
        return self.stream != "none"

    @property
    def plain(self):
        return self.symbol[: -len(self.stream) - 1] if self.is_twin else self.symbol


def read(path):
    rows = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                rows.append(Row(f"{path}:{number}", line.split("|")))
    by_name = {r.symbol: r for r in rows}
    for r in rows:
        if r.is_twin:
            plain = by_name.get(r.plain)
            if not plain:
                raise SystemExit(f"{r.where}: twin of {r.plain}, which the table lacks")
            r.status, r.type = plain.status, plain.type
    return rows


def split_type(row):
    """'CUresult(int *, CUdevice)' -> ('CUresult', ['int *', 'CUdevice'])"""
    m = re.fullmatch(r"(.*?)\((.*)\)", row.type)
    if not m:
        raise SystemExit(f"{row.where}: no function type: {row.type}")
    params = [p.strip() for p in m[2].split(",")]
    return m[1].strip(), [] if params in (["void"], [""]) else params


def declare(row, name=None, named=True):
    ret, params = split_type(row)
    parts = []
    for i, p in enumerate(params):
        sep = "" if p.endswith("*") else " "
        parts.append(f"{p}{sep}p{i}" if named else p)
    sep = "" if ret.endswith("*") else " "
    return f"{ret}{sep}{name or row.symbol}({', '.join(parts) or 'void'})"


def gen_map(rows):
    out = ["/* Made by src/api/gen.py; do not edit. The vendor's library has no symbol versions either. */", "{", "global:"]
    out += [f"\t{r.symbol};" for r in rows]
    return "\n".join(out + ["local:", "\t*;", "};", ""])


def gen_protos(rows, abi):
    out = [HEAD + "#pragma once\n", f'#include "api/{abi}"\n', "#pragma GCC visibility push(default)"]
    out += [declare(r, named=False) + ";" for r in rows if r.type != "-"]
    return "\n".join(out + ["#pragma GCC visibility pop", ""])


def gen_cuda_stubs(rows):
    out = [HEAD + '#include "frontend/cuda/fe.h"\n', '#include "api/cuda_protos.h"\n']
    out.append('#pragma GCC diagnostic ignored "-Wunused-parameter"\n')
    for r in rows:
        if not r.is_twin and r.status == "modelled":
            continue
        out.append("AQ_EXPORT " + declare(r) + "\n{")
        if r.status == "refused":
            out.append(f'\treturn aq_fe_refuse("{r.plain}");')
        elif not r.is_twin:
            out.append(f'\treturn aq_fe_accept("{r.symbol}");')
        else:
            args = ", ".join(f"p{i}" for i in range(len(split_type(r)[1])))
            out.append(f"\tint saved = aq_fe_ptds;\n\t{split_type(r)[0]} result;\n")
            out.append(f"\taq_fe_ptds = 1;\n\tresult = {r.plain}({args});")
            out.append("\taq_fe_ptds = saved;\n\treturn result;")
        out.append("}\n")
    return "\n".join(out)


def gen_cuda_procs(rows):
    order = {"none": 0, "ptsz": 1, "ptds": 2}
    kind = {"none": "PLAIN", "ptsz": "PTSZ", "ptds": "PTDS"}
    out = [HEAD + '#include "api/api.h"\n', '#include "api/cuda_protos.h"\n']
    out.append("const struct aq_api_proc aq_api_procs[] = {")
    for r in sorted(rows, key=lambda r: (r.base, order[r.stream], r.since)):
        out.append(
            f'\t{{ "{r.base}", {r.since}, AQ_API_{kind[r.stream]}, AQ_API_{r.status.upper()}, '
            f'"{r.symbol}", (void (*)(void)){r.symbol} }},'
        )
    out.append("};\nconst size_t aq_api_procs_count = sizeof(aq_api_procs) / sizeof(aq_api_procs[0]);\n")
    return "\n".join(out)


def gen_nvml_stubs(rows):
    out = [HEAD + '#include "frontend/nvml/nv.h"\n']
    # Their arguments are not looked at: the caller clears what it pushed, whatever we declare.
    out.append('#pragma GCC diagnostic ignored "-Wmissing-prototypes"')
    out.append('#pragma GCC diagnostic ignored "-Wmissing-declarations"\n')
    for r in rows:
        if r.status == "refused":
            out.append(f'AQ_EXPORT nvmlReturn_t {r.symbol}(void)\n{{\n\treturn aq_nv_refuse("{r.symbol}");\n}}\n')
    return "\n".join(out)


def gen_entries(rows, what):
    out = [HEAD + '#include "api/api.h"\n', f"const struct aq_api_entry aq_api_{what}[] = {{"]
    out += [f'\t{{ "{r.symbol}", AQ_API_{r.status.upper()} }},' for r in rows]
    out.append(f"}};\nconst size_t aq_api_{what}_count = sizeof(aq_api_{what}) / sizeof(aq_api_{what}[0]);\n")
    return "\n".join(out)


def extra_names(path):
    """The first field of each line of a table of further names."""
    with open(path, encoding="utf-8") as f:
        return [line.split("|")[0].strip() for line in f if line.strip() and not line.startswith("#")]


def wrapped_names(where):
    """Names that the sources of a stand-in define; the rest becomes jumps."""
    found = set()
    for path in where:
        with open(path, encoding="utf-8") as f:
            found |= set(DEFINITION.findall(f.read()))
    return found


def gen_shim_map(names, _rows, _wrapped):
    out = ["/* Made by src/api/gen.py; do not edit. The vendor's library has no symbol versions either. */", "{", "global:"]
    return "\n".join(out + [f"\t{n};" for n in names] + ["local:", "\t*;", "};", ""])


def gen_shim_asm(names, _rows, wrapped):
    out = [HEAD + '#include "shim/jump.h"\n', "AQ_SLOTS_BEGIN"]
    out += [f"AQ_SLOT({i})" for i in range(len(names))] + ["AQ_SLOTS_END", "", "AQ_CODE_BEGIN"]
    out += [f"AQ_LAZY({i})" for i in range(len(names))]
    out += [f"AQ_JUMP({n}, {i})" for i, n in enumerate(names) if n not in wrapped]
    return "\n".join(out + ["AQ_CODE_END", ""])


def gen_shim_slots(names, _rows, _wrapped):
    out = [HEAD + "#pragma once\n", "/* Index of each name among the slots. */", "enum {"]
    out += [f"\tAQ_SLOT_{n}," for n in names]
    return "\n".join(out + ["\tAQ_SLOTS", "};", ""])


def gen_shim_names(names, _rows, _wrapped):
    out = [HEAD + '#include "shim/slots.h"\n', "const char *const aq_slot_names[] = {"]
    return "\n".join(out + [f'\t"{n}",' for n in names] + ["};", ""])


def gen_shim_procs(names, rows, wrapped):
    order = {"none": 0, "ptsz": 1, "ptds": 2}
    kind = {"none": "PLAIN", "ptsz": "PTSZ", "ptds": "PTDS"}
    index = {n: i for i, n in enumerate(names)}
    out = [HEAD + '#include "shim/slots.h"\n']
    out.append("/* The types do not matter here, only the addresses. */")
    out.append('#if !defined(__clang__)')
    out.append('#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"')
    out.append('#endif')
    out += [f'__attribute__((visibility("default"))) void {r.symbol}(void);' for r in rows]
    out.append("\nconst struct aq_slot_proc aq_slot_procs[] = {")
    for r in sorted(rows, key=lambda r: (r.base, order[r.stream], r.since)):
        managed = "true" if r.symbol in wrapped else "false"
        out.append(
            f'\t{{ "{r.base}", {r.since}, AQ_API_{kind[r.stream]}, {managed}, {index[r.symbol]}, {r.symbol} }},'
        )
    out.append("};\nconst size_t aq_slot_procs_count = sizeof(aq_slot_procs) / sizeof(aq_slot_procs[0]);\n")
    return "\n".join(out)


SHIM_GENERATORS = {
    "shim-map": gen_shim_map,
    "shim-asm": gen_shim_asm,
    "shim-slots": gen_shim_slots,
    "shim-names": gen_shim_names,
    "shim-procs": gen_shim_procs,
}

# Classes of which every name needs a decision of somebody who has thought about memory.
GUARDED = ("alloc", "free", "vmm", "pool", "ipc", "ctx", "graph")
GUARDED_NAMES = re.compile(r"Alloc|Import|External|Multicast|GreenCtx|Checkpoint|(Module|Library)(Load|Unload)|MemGetInfo|TotalMem|ProcAddress|ExportTable")

# The same for NVML, where the question is whose memory, processes and work an answer is about, and which cards it names.
GUARDED_NVML = re.compile(
    r"Process|MemoryInfo|MemoryUsage|Utiliz|Handle|Sample|Pids|Accounting|Session|Stats$|Gpm|DeviceCount|GetCount|GetIndex|Devices$|GpuSet|NearestGpus|Pstates|BAR1|ExportTable"
)


def check_shim(rows, passes, where):
    files = [p for w in where for p in (sorted(glob.glob(os.path.join(w, "*.c"))) if os.path.isdir(w) else [w])]
    wrapped, listed = wrapped_names(files), set()
    with open(passes, encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, _, why = line.rstrip("\n").partition("|")
                if not why.strip():
                    raise SystemExit(f"{passes}: {name} has no reason")
                listed.add(name)
    known, bad = {r.symbol for r in rows}, []
    bad += [f"{passes}: {n} is not in the table" for n in sorted(listed - known)]
    bad += [f"{n} is defined, but not in the table" for n in sorted(wrapped - known)]
    bad += [f"{passes}: {n} is wrapped: no jump" for n in sorted(listed & wrapped)]
    for r in rows:
        names = GUARDED_NVML if r.symbol.startswith("nvml") else GUARDED_NAMES
        guarded = r.cls in GUARDED or names.search(r.symbol)
        twin = r.is_twin and r.plain in wrapped
        if (guarded or twin) and r.symbol not in wrapped | listed and not (r.is_twin and r.plain in listed):
            bad.append(f"{r.symbol}: class {r.cls}, neither wrapped nor listed in {passes}")
    return bad


GENERATORS = {
    "cuda-map": gen_map,
    "cuda-protos": lambda rows: gen_protos(rows, "cuda_abi.h"),
    "cuda-stubs": gen_cuda_stubs,
    "cuda-procs": gen_cuda_procs,
    "cuda-entries": lambda rows: gen_entries(rows, "cuda"),
    "nvml-map": gen_map,
    "nvml-protos": lambda rows: gen_protos(rows, "nvml_abi.h"),
    "nvml-stubs": gen_nvml_stubs,
    "nvml-entries": lambda rows: gen_entries(rows, "nvml"),
}


def check(rows):
    """Problems of the table in itself, as lines."""
    bad = []
    for a, b in zip(rows, rows[1:]):
        if a.symbol.encode() >= b.symbol.encode():
            bad.append(f"{b.where}: {b.symbol} is out of order or twice")
    seen = {}
    for r in rows:
        if r.status not in STATUSES:
            bad.append(f"{r.where}: status {r.status}")
        if r.cls not in CLASSES:
            bad.append(f"{r.where}: class {r.cls}")
        if r.stream not in ("none", "ptsz", "ptds"):
            bad.append(f"{r.where}: stream {r.stream}")
        if r.is_twin and not r.symbol.endswith("_" + r.stream):
            bad.append(f"{r.where}: {r.symbol} is no {r.stream} twin by its name")
        if not r.is_twin and re.search(r"_pt[sd][sz]$", r.symbol):
            bad.append(f"{r.where}: {r.symbol} is a twin by its name")
        if not r.plain.startswith(r.base):
            bad.append(f"{r.where}: base {r.base} is not that of {r.symbol}")
        if r.since:
            key = (r.base, r.is_twin, r.since)
            if key in seen:
                bad.append(f"{r.where}: cannot be told from {seen[key]} by version and flag")
            seen[key] = r.symbol
        if r.type != "-":
            split_type(r)
        elif r.status != "refused":
            bad.append(f"{r.where}: {r.status} without a type")
    return bad


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip()}


def check_names(rows, library):
    ours, theirs = {r.symbol for r in rows}, exported(library)
    bad = [f"{library} exports {n}, the table lacks it" for n in sorted(theirs - ours)]
    return bad + [f"{library} does not export {n} of the table" for n in sorted(ours - theirs)]


def check_sources(rows, where):
    found, bad = {}, []
    files = [p for w in where for p in (sorted(glob.glob(os.path.join(w, "*.c"))) if os.path.isdir(w) else [w])]
    for path in files:
        with open(path, encoding="utf-8") as f:
            for name in DEFINITION.findall(f.read()):
                if name in found:
                    bad.append(f"{path}: {name} is defined in {found[name]} too")
                found[name] = path
    want = {r.symbol for r in rows if r.status == "modelled" and not r.is_twin}
    bad += [f"{found[n]}: {n} is defined, but the table does not say modelled" for n in sorted(set(found) - want)]
    return bad + [f"{n} is modelled by the table, but defined nowhere" for n in sorted(want - set(found))]


def mark(status, names):
    if status not in STATUSES:
        raise SystemExit(f"status is one of {', '.join(STATUSES)}")
    for table, prefix in (("cuda.tbl", "cu"), ("nvml.tbl", "nvml")):
        wanted = {n for n in names if n.startswith(prefix)}
        if not wanted:
            continue
        with open(os.path.join(HERE, table), "r+", encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            lines = f.read().split("\n")
            for i, line in enumerate(lines):
                fields = line.split("|")
                if line.startswith("#") or fields[0] not in wanted:
                    continue
                at = 5 if prefix == "cu" else 1
                if fields[at] == "twin":
                    raise SystemExit(f"{fields[0]} is a twin: mark the plain name")
                fields[at] = status
                lines[i] = "|".join(fields)
                wanted.discard(fields[0])
            if wanted:
                raise SystemExit(f"{table} lacks {', '.join(sorted(wanted))}")
            f.seek(0)
            f.write("\n".join(lines))
            f.truncate()


def main(argv):
    if len(argv) >= 4 and argv[1] == "mark":
        mark(argv[2], argv[3:])
        return 0
    if len(argv) >= 3 and argv[1].startswith("check"):
        rows = read(argv[2])
        bad = {
            "check": lambda: check(rows),
            "check-stub": lambda: check_names(rows, argv[3]),
            "check-exports": lambda: check_names(rows, argv[3]),
            "check-sources": lambda: check_sources(rows, argv[3:]),
            "check-shim": lambda: check_shim(rows, argv[3], argv[4:]),
        }[argv[1]]()
        for line in bad:
            print(line, file=sys.stderr)
        return 1 if bad else 0
    if len(argv) >= 5 and argv[1] in SHIM_GENERATORS:
        rows = read(argv[2])
        names = sorted({r.symbol for r in rows} | set(extra_names(argv[3])), key=str.encode)
        text = SHIM_GENERATORS[argv[1]](names, rows, wrapped_names(argv[5:]))
        with open(argv[4], "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    if len(argv) == 4 and argv[1] in GENERATORS:
        text = GENERATORS[argv[1]](read(argv[2]))
        with open(argv[3], "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
