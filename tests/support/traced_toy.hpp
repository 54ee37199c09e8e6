#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "support/toy_model.hpp"

namespace tessera::test {

/// Calls and bytes of a kind of collective.
struct Count {
  int calls = 0;
  std::size_t bytes = 0;
  friend bool operator==(const Count&, const Count&) = default;
};
using Traffic = std::map<std::string, Count>;

void PrintTo(const Count& count, std::ostream* out);

/// The last step's records of a run of the toy, and sizes used in formulas.
struct Traced {
  std::vector<std::vector<trace::Record>> records;  // by rank, of the last step
  std::size_t root_bytes = 0;                       // whole parameters, padded
  std::size_t blocks_bytes = 0;
  std::size_t root_gradients = 0;
  std::size_t blocks_gradients = 0;
  int units = 0;
  int blocks = 0;
  int segments_of_blocks = 0;
  std::vector<std::uint64_t> submitters;  // by rank
};

[[nodiscard]] Traced trace_last_step(const ToyRun& run);

/// The collectives of one rank by kind, without the step's scalars.
[[nodiscard]] Traffic traffic_of(const std::vector<trace::Record>& records);
/// What the engine issued, in order, such as "gather root".
[[nodiscard]] std::vector<std::string> issued(const std::vector<trace::Record>& records);

}  // namespace tessera::test
