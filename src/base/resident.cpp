#include "base/resident.hpp"

#include <unistd.h>

#include <cstdio>
#include <memory>

namespace tessera {
namespace {

struct Close {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// Exact: the kernel walks the pages.
std::size_t from_rollup() noexcept {
  const File file{std::fopen("/proc/self/smaps_rollup", "re")};
  if (!file) { return 0; }
  char line[256];
  std::size_t kilobytes = 0;
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::sscanf(line, "Rss: %zu kB", &kilobytes) == 1) { return kilobytes * 1024; }
  }
  return 0;
}

// For kernels before 4.14. Newer ones keep these counts for each processor and add them up late, so
// they may be off by megabytes.
std::size_t from_statm() noexcept {
  const File file{std::fopen("/proc/self/statm", "re")};
  std::size_t all = 0;
  std::size_t resident = 0;
  if (!file || std::fscanf(file.get(), "%zu %zu", &all, &resident) != 2) { return 0; }
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::size_t resident_bytes() noexcept {
  const std::size_t exact = from_rollup();
  return exact != 0 ? exact : from_statm();
}

}  // namespace tessera
