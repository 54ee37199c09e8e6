#pragma once

#include "kernels/table.hpp"

namespace tessera::kernels {

/// The CPU's kernels, which write what they do into the log of their stream if it has one
/// (StreamState::log_to), with the seconds that they took: on a stream that runs them on return, a
/// CPU's of kind *caller*. On one of `meta` they do nothing else. What says how much memory is
/// needed speaks for `kind`.
[[nodiscard]] const Table& logged_table(DeviceKind kind);

}  // namespace tessera::kernels
