#pragma once

#include <cstdint>
#include <vector>

#include "kernels/update/update_run.hpp"

namespace tessera::kernels::reference {

/// The quantised moments of a run as fp32 numbers, one per element.
struct WideMoments {
  std::vector<float> first;
  std::vector<float> second;  ///< empty if there is none
};

/// Reads the quantised moments of `run`.
[[nodiscard]] WideMoments dequantise(const UpdateRun& run);

/// Stores `moments` as the quantised moments of `run`, as kernels/update/moment_code.hpp defines.
void quantise(const UpdateRun& run, std::int64_t updates, const WideMoments& moments);

}  // namespace tessera::kernels::reference
