#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/world/world.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

enum class Collective { all_gather, reduce_scatter, all_reduce };
[[nodiscard]] std::string_view to_string(Collective collective) noexcept;
[[nodiscard]] const std::vector<Collective>& all_collectives();

/// The collective of `whole` and `shard`; all_reduce does not use `shard`.
[[nodiscard]] Batch batch_of(Collective collective, View whole, View shard);

struct CollectiveOptions {
  std::int64_t bytes = std::int64_t{64} << 20;  ///< of the whole tensor on each rank, fp32
  int ranks = 2;
  int rounds = 20;
};

/// Bytes that one rank reads and writes if peers' buffers are read in place, for n bytes in the
/// whole tensor on N ranks:
///
///   all_gather      2 n                  reads every shard, writes the whole
///   reduce_scatter  n + n/N              reads its part of every rank's tensor, writes a shard
///   all_reduce      n + n/N + 2 n(N-1)/N reduces its part, then copies the others' parts
[[nodiscard]] double moved_bytes(Collective collective, double bytes, int ranks);

/// One rank's buffers, large enough for all collectives.
class CollectiveBuffers {
 public:
  virtual ~CollectiveBuffers() = default;
  [[nodiscard]] virtual float* whole() noexcept = 0;
  [[nodiscard]] virtual float* shard() noexcept = 0;
  /// Reads and writes `bytes` in total, at most four times those of the whole; waits for the last
  /// of `repeats`.
  virtual void copy(double bytes, int repeats) = 0;
};

/// Where ranks have their buffers, and the name of a copy of the same bytes there.
struct CollectivePlace {
  WorldOptions world = {};
  std::string limit;
  int repeats = 1;  ///< consecutive calls in each measured time
  std::function<std::unique_ptr<CollectiveBuffers>(World&, std::int64_t elems)> make;
};
[[nodiscard]] CollectivePlace host_memory();

/// Runs the collective out of place (all_reduce: in place) over `local` ranks, in turn with
/// simultaneous copies of the same bytes by the same ranks. Returns one comparison per collective;
/// a time runs from the moment all ranks have met to the moment the last rank has its data.
[[nodiscard]] std::vector<Comparison> measure_collectives(
    const std::vector<Collective>& collectives, const CollectiveOptions& options,
    const CollectivePlace& place = host_memory());

}  // namespace tessera::bench
