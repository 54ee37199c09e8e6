#pragma once

#include <string>
#include <vector>

namespace tessera::test {

/// Stands in for a profiler: NVTX, in any loaded module, passes every range to it. Records the
/// ranges of the calling thread during its lifetime.
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
