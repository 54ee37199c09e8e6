"""The machine and its card, in words."""

import os
import re

LIMITS = ("idle", "application clocks", "software power cap", "hardware slowdown", "sync boost",
          "software thermal slowdown", "hardware thermal slowdown", "hardware power brake", "display clock")
PROBE = """#include <cstdio>
int main() {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) {
    return 1;
  }
  std::printf("%d.%d\\n", major, minor);
}
"""
TORCH = """import torch
print(torch.__version__, "with CUDA", torch.version.cuda, "and cuDNN", torch.backends.cudnn.version())"""


class Machine:
    def __init__(self, programs, emulated, python):
        self.programs, self.python, self.emulated = programs, python, emulated
        self.has_card = not emulated and programs.has("nvidia-smi")
        self._told = None

    def card(self, *fields):
        """Fields of the first card; "unknown" if nvidia-smi does not know one."""
        query = ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", "0")
        return (self.programs.ask(*query).splitlines() or ["unknown"])[0]

    def clocks(self):
        """The card's current state; nothing if it cannot be read."""
        if not self.has_card:
            return ""
        fields = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
        values = self.card(*fields, "clocks_event_reasons.active")
        if "0x" not in values:  # older drivers
            values = self.card(*fields, "clocks_throttle_reasons.active")
        sm, memory, power, heat, mask = [*values.split(", "), "", "", "", ""][:5]
        return f"SM {sm}, memory {memory}, {power}, {heat} C, held by {limits(mask)}"

    def gpus(self):
        """How many there are; of the emulated device, how many the double is set to."""
        if self.emulated:
            return int(os.environ.get("TESSERA_EMULATED_CUDA_DEVICES", 1))
        listed = self.programs.ask("nvidia-smi", "--list-gpus") if self.has_card else ""
        return sum(line.startswith("GPU ") for line in listed.splitlines())

    def architecture(self, work):
        """The compute capability as nvcc expects it, such as 90; nothing if there is no device."""
        capability = self.card("compute_cap") if self.has_card else ""
        if not re.fullmatch(r"\d+\.\d+", capability):
            (work / "probe.cu").write_text(PROBE)
            self.programs.ask("nvcc", "-o", str(work / "probe"), str(work / "probe.cu"))
            capability = self.programs.ask(str(work / "probe"))
        return capability.replace(".", "") if re.fullmatch(r"\d+\.\d+", capability) else ""

    def told(self):
        """What the page's first table says, by the names of its rows."""
        if self._told is None:
            self._told = {**self.device(), **self.system()}
        return self._told

    def device(self):
        if self.emulated:
            return {"device": "emulated on the processor: the numbers below mean nothing"}
        if not self.has_card:
            return {"device": "no nvidia-smi"}
        return {"device": f"{self.card('name')}, {self.card('memory.total')}, "
                          f"compute capability {self.card('compute_cap')}",
                "driver": self.card("driver_version"), "clocks at the start": self.clocks(),
                "clocks at most": f"SM {self.card('clocks.max.sm')}, memory {self.card('clocks.max.mem')}"}

    def system(self):
        def version(*command):
            return (self.programs.ask(*command).splitlines() or ["not found"])[-1]
        cmake = (self.programs.ask("cmake", "--version").splitlines() or ["no cmake"])[0]
        return {"processor": f"{line_of('/proc/cpuinfo', r'model name.*: (.*)')}, {len(os.sched_getaffinity(0))} cores",
                "system": f'{line_of("/etc/os-release", "PRETTY_NAME=.(.*).")}, kernel {os.uname().release}',
                "nvcc": version("nvcc", "--version"),
                "compiler, CMake": f"{version('c++', '-dumpfullversion', '-dumpversion')}, {cmake}",
                "PyTorch": version(self.python, "-c", TORCH)}


def limits(mask):
    """The reasons for reduced clocks of nvidia-smi's mask, in words."""
    if not re.fullmatch("0x[0-9a-fA-F]+", mask):
        return "not told"
    return "+".join(name for i, name in enumerate(LIMITS) if int(mask, 16) >> i & 1) or "nothing"


def line_of(path, pattern):
    """What the pattern's group matches in the first line of a file that matches it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(pattern, file.read())
            return found[1] if found else ""
    except OSError:
        return ""
