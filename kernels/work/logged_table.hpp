#pragma once

#include "kernels/table.hpp"

namespace tessera::kernels {

/// The CPU's kernels, which also write their work into the log of their stream, if it has one
/// (StreamState::log_to), with the seconds that they took. The stream must run them before they
/// return: a CPU stream of kind *caller*. On a stream of `meta` they only log. The functions of the
/// table that report memory needs answer for `kind`.
[[nodiscard]] const Table& logged_table(DeviceKind kind);

}  // namespace tessera::kernels
