#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/tessera.hpp"

namespace tessera::test {

/// A short training program (declares, materialises, optimises, makes two steps) whose memory can
/// be planned and measured.
struct PlannedJob {
  std::string name;
  std::function<void(World&, const ModelOptions&)> body;
};

/// Three shapes of GPT, and a hand-written trainer with a root unit, a tied table, frozen and
/// odd-sized parameters, and its own memory.
[[nodiscard]] std::vector<PlannedJob> planned_jobs();

/// Every strategy (hybrid in two groups if `ranks` is even), without accumulation and with both
/// accumulation modes.
[[nodiscard]] std::vector<ModelOptions> planned_options(int ranks);

/// The difference between two reports of one rank, as text; empty if none.
[[nodiscard]] std::string difference(const MemoryReport& planned, const MemoryReport& measured);

/// "zero3, 2 micro-batches (every)".
[[nodiscard]] std::string text_of(const ModelOptions& options);

}  // namespace tessera::test
