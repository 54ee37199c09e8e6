#pragma once

#include "tools/scale/scale_search.hpp"

namespace tessera::tools {

/// Trains a point's model for two steps, its ranks as threads of this process, and says what each
/// rank held. What this machine cannot do in a moment is not run, and the reason given: ranks that
/// are planned to be processes, more than three quarters of the memory, more than some seconds of
/// computing.
[[nodiscard]] Measurement measure(const Settings& settings, const ScalePoint& point);

/// Empty if every rank of every point that ran held what was planned, to the byte; otherwise which
/// did not.
[[nodiscard]] std::string deviation(const std::vector<ScalePoint>& points);

}  // namespace tessera::tools
