#pragma once

#include <string>
#include <vector>

namespace tessera::test {

/// Stands where a profiler would: NVTX, in whatever module is loaded, hands it every range. Keeps
/// those of the calling thread while it lives.
class NvtxRecorder {
 public:
  NvtxRecorder();
  ~NvtxRecorder();
  NvtxRecorder(const NvtxRecorder&) = delete;
  NvtxRecorder& operator=(const NvtxRecorder&) = delete;

  /// Ranges in order: "+name" where one begins, "-" where the last one ends.
  [[nodiscard]] const std::vector<std::string>& calls() const;
};

}  // namespace tessera::test
