#include "cuda/nvtx_recorder.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "support/places.hpp"

namespace tessera::test {
namespace {

// Runs before any range is named, because NVTX looks for a profiler only once.
[[maybe_unused]] const int named = ::setenv("NVTX_INJECTION64_PATH", test::kNvtxRecorder, 1);

/// Ranges of the calling thread.
std::vector<std::string>& recorded() {
  using Recorded = void*();
  static void* const library = dlopen(test::kNvtxRecorder, RTLD_NOW | RTLD_LOCAL);
  static auto* const function =
      reinterpret_cast<Recorded*>(dlsym(library, "tessera_nvtx_recorded"));
  return *static_cast<std::vector<std::string>*>(function());
}

}  // namespace

NvtxRecorder::NvtxRecorder() {
  recorded().clear();
}
NvtxRecorder::~NvtxRecorder() {
  recorded().clear();
}
const std::vector<std::string>& NvtxRecorder::calls() const {
  return recorded();
}

}  // namespace tessera::test
