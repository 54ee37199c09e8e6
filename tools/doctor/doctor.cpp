#include "tools/doctor/doctor.hpp"

#include <fmt/format.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/bytes.hpp"
#include "tessera/device/device.hpp"
#include "tessera/device/product_library.hpp"
#include "tessera/world/launch.hpp"
#include "tools/common/machine.hpp"
#include "tools/common/processor.hpp"
#include "tools/doctor/support.hpp"

namespace tessera::tools {
namespace {

void line(std::string_view what, std::string_view value) {
  fmt::print("  {:<18} {}\n", what, value);
}

/// Software that this build does not use, but that the machine may have.
struct Part {
  std::string name;
  std::string found;  ///< what was found, empty if nothing
  std::string how;    ///< how to get it
};

std::string found_library(const std::string& library) {
  return has_library(library) ? library : "";
}

/// Lists what a CUDA module needs to be built and to run.
void add_cuda_parts(const CudaMachine& cuda, std::vector<Part>& parts) {
  if (cuda.devices.empty()) {
    parts.push_back({"CUDA driver",
                     first_line_of("nvidia-smi --query-gpu=name,driver_version,memory.total "
                                   "--format=csv,noheader"),
                     "Debian package nvidia-driver (non-free), on a machine with an NVIDIA GPU"});
  }
  if (!cuda.module.empty()) { return; }
  parts.push_back({"CUDA toolkit",
                   first_line_of("{ command -v nvcc || ls /usr/local/cuda/bin/nvcc; }"),
                   "NVIDIA's packages (cuda-toolkit-13-0, 12.4 at least), and another build"});
  parts.push_back({"NCCL", found_library("libnccl.so.2"),
                   "NVIDIA's packages (libnccl-dev), or Python's nvidia-nccl, and another build"});
}

std::vector<Part> parts(const CudaMachine& cuda) {
  std::vector<Part> parts;
  add_cuda_parts(cuda, parts);
  if (mpi_version().empty()) {
    parts.push_back({"MPI", first_line_of("mpirun --version"),
                     "Debian packages libopenmpi-dev openmpi-bin, and another build"});
  }
  if (product_library().empty()) {
    parts.push_back({"oneDNN", found_library("libdnnl.so"),
                     "Debian package libdnnl-dev, and another build: faster products of bf16"});
  }
  return parts;
}

void machine() {
  fmt::print("machine\n");
  line("processor", processor_name());
  line("instructions",
       fmt::format("compiled for {}, the processor has {}", compiled_level(), processor_level()));
  line("used", describe_instructions());
  line("cores", std::to_string(usable_cores()));
  line("memory", format_bytes(usable_memory()));
}

std::string devices_of(const CudaMachine& cuda) {
  if (cuda.module.empty()) { return "cpu"; }
  return cuda.devices.empty() ? "cpu; cuda is built, but cannot be used here: see below"
                              : "cpu, cuda";
}

void print_build(const CudaMachine& cuda) {
  fmt::print("\nbuild\n");
  line("tessera", TESSERA_VERSION);
  line("compiler", TESSERA_COMPILER);
  line("libraries",
       fmt::format("Eigen {}, fmt {}.{}.{}, nlohmann-json {}.{}.{}, CLI11 {}",
                   TESSERA_EIGEN_VERSION, FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                   FMT_VERSION % 100, NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                   NLOHMANN_JSON_VERSION_PATCH, CLI11_VERSION));
  line("matrix products", describe_products());
  line("devices", devices_of(cuda));
  line("communicators", "local (ranks are threads of one process)");
  if (!mpi_version().empty()) {
    line("", fmt::format("mpi (ranks are processes of mpirun or srun: {})", mpi_version()));
  }
  if (!cuda.module.empty()) {
    line("", "nccl (ranks are processes of torchrun, mpirun or srun, on CUDA devices)");
  }
  line("same bits", "always; with nccl if --deterministic is given");
  line("strategies", "dp, ddp, zero1, zero2, zero3 (fsdp), hybrid");
  line("works together", "tessera doctor --support prints the table");
  line("precision", "fp32, bf16 and fp16 (with fp32 master weights)");
  line("threads", fmt::format("1 per rank by default (--threads); {} cores for ranks x threads",
                              usable_cores()));
}

void cuda_section(const CudaMachine& cuda) {
  fmt::print("\nCUDA\n");
  if (!cuda.module.empty()) { line("module", cuda.module); }
  const char* what = "libraries";
  for (const std::string& library : cuda.libraries) { line(std::exchange(what, ""), library); }
  for (const std::string& missing : cuda.without) { line("without", missing); }
  for (std::size_t i = 0; i < cuda.devices.size(); ++i) {
    line(fmt::format("cuda:{}", i), cuda.devices[i]);
  }
  if (!cuda.problem.empty()) { line("not usable", cuda.problem); }
}

void beyond(const CudaMachine& cuda) {
  const std::vector<Part> all = parts(cuda);
  if (all.empty()) { return; }
  fmt::print("\non this machine, not used by this build\n");
  bool missing = false;
  for (const Part& part : all) {
    line(part.name, part.found.empty() ? "not found" : part.found);
    missing = missing || part.found.empty();
  }
  if (!missing) { return; }
  fmt::print("\nmissing (nothing that this build needs)\n");
  for (const Part& part : all) {
    if (part.found.empty()) { line(part.name, part.how); }
  }
}

}  // namespace

void doctor(const Settings& settings) {
  if (settings.support) {
    fmt::print("{}", support_table());
    return;
  }
  (void)product_library();  // refuses a wrong TESSERA_CPU before anything is printed
  const CudaMachine cuda = cuda_machine();
  machine();
  print_build(cuda);
  cuda_section(cuda);
  beyond(cuda);
}

}  // namespace tessera::tools
