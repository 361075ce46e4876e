"""The machine by its features: the names that virtual machines give to themselves and to their processors say little.

    name()  "2 cores, Zen 5, AVX-512 VNNI/BF16, no AMX"
    slug()  "2-cores-zen-5-avx-512-vnni-bf16-no-amx", the folder of its results

Others tells how much of the processors other processes took while something was measured.
"""
import os
import re
from pathlib import Path

# (vendor, family, first model, last model, microarchitecture)
CORES = (
    ("AuthenticAMD", 23, 0x00, 0x2F, "Zen"), ("AuthenticAMD", 23, 0x30, 0xFF, "Zen 2"),
    ("AuthenticAMD", 25, 0x00, 0x0F, "Zen 3"), ("AuthenticAMD", 25, 0x20, 0x5F, "Zen 3"),
    ("AuthenticAMD", 25, 0x10, 0x1F, "Zen 4"), ("AuthenticAMD", 25, 0x60, 0xAF, "Zen 4"),
    ("AuthenticAMD", 26, 0x00, 0xFF, "Zen 5"),
    ("GenuineIntel", 6, 85, 85, "Skylake-SP or Cascade Lake"), ("GenuineIntel", 6, 106, 108, "Ice Lake"),
    ("GenuineIntel", 6, 143, 143, "Sapphire Rapids"), ("GenuineIntel", 6, 207, 207, "Emerald Rapids"),
    ("GenuineIntel", 6, 173, 174, "Granite Rapids"),
)


def field(info, name):
    match = re.search(rf"^{name}\s*:\s*(.*)$", info, re.MULTILINE)
    return match.group(1) if match else ""


def core(info):
    vendor, family, model = field(info, "vendor_id"), field(info, "cpu family"), field(info, "model")
    for known, number, first, last, what in CORES:
        if vendor == known and family == str(number) and model.isdecimal() and first <= int(model) <= last:
            return what
    return f"{vendor or 'unknown'} family {family or '?'} model {model or '?'}"


def vectors(flags):
    if "avx512f" in flags:
        more = [name.upper() for name in ("vnni", "bf16") if f"avx512_{name}" in flags]
        return "AVX-512" + (" " + "/".join(more) if more else "")
    return "AVX-VNNI" if "avx_vnni" in flags else "AVX2" if "avx2" in flags else "no AVX2"


def name(info=None):
    info = Path("/proc/cpuinfo").read_text() if info is None else info
    flags = set(field(info, "flags").split())
    count = len(re.findall(r"^processor\s*:", info, re.MULTILINE))
    amx = "/".join(kind for kind in ("int8", "bf16") if f"amx_{kind}" in flags)
    return f"{count} core{'s' if count != 1 else ''}, {core(info)}, {vectors(flags)}, {'AMX ' + amx.upper() if amx else 'no AMX'}"


def slug(machine):
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


class Others:
    """The share of all processors that others than this process and its ended children take, from now on."""

    def __init__(self):
        self.start = self.now()

    def now(self):
        """(seconds of all processors, seconds of them that were used, seconds that this process and its children used)"""
        ticks = [int(t) for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        unit, own = os.sysconf("SC_CLK_TCK"), os.times()
        idle = ticks[3] + ticks[4]
        return sum(ticks) / unit, (sum(ticks) - idle) / unit, own.user + own.system + own.children_user + own.children_system

    def share(self):
        total, used, own = (after - before for before, after in zip(self.start, self.now()))
        return max(0.0, used - own) / total if total > 0 else 0.0
