#pragma once

#include "tools/scale/scale_search.hpp"

namespace tessera::tools {

/// Trains a point's model for two steps, with its ranks as threads of this process, and returns
/// what each rank held. It does not run points that this machine cannot run quickly, and gives the
/// reason: ranks that are planned as processes, more than three quarters of the memory, or more
/// than some seconds of computation.
[[nodiscard]] Measurement measure(const Settings& settings, const ScalePoint& point);

/// Empty if every rank of every point that ran held what was planned, to the byte; otherwise names
/// a point that did not.
[[nodiscard]] std::string deviation(const std::vector<ScalePoint>& points);

}  // namespace tessera::tools
