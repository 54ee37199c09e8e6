#pragma once

#include <ostream>

#include "tessera/world/world.hpp"

namespace tessera {

/// Prints to standard output as std::printf does, on rank 0 only, and flushes it. It prints nothing
/// on other ranks and on simulated ranks (a plan).
///
///     tessera::print(world, "step %d: loss %.4f\n", step, loss);
[[gnu::format(printf, 2, 3)]] void print(const World& world, const char* format, ...);

/// Returns std::cout on rank 0, and a stream without output on other ranks and on simulated ranks.
/// The reference is valid on the calling thread.
[[nodiscard]] std::ostream& out(const World& world);

}  // namespace tessera
