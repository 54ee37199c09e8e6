#pragma once

#include <cstdint>
#include <vector>

#include "kernels/update/update_run.hpp"

namespace tessera::kernels::reference {

/// Moments of 8 bits as numbers, of each element of a run.
struct WideMoments {
  std::vector<float> first;
  std::vector<float> second;  ///< empty if there is none
};

[[nodiscard]] WideMoments read_codes(const UpdateRun& run);

/// Stores them, as kernels/update/moment_code.hpp says.
void write_codes(const UpdateRun& run, std::int64_t updates, const WideMoments& moments);

}  // namespace tessera::kernels::reference
