#pragma once

#include <span>
#include <vector>

#include "comm/local/local_group.hpp"

namespace tessera {

/// One rank's share of the work of an open meeting: it reads the peers' buffers where they are.
///
///   first()  --all ranks--  second()  --all ranks--
///
/// In each half a rank writes only what no other reads or writes in that half.
class Mover {
 public:
  Mover(int rank, int ranks);

  void first(const Batch& batch, const std::vector<Visit>& visits) noexcept;
  void second(const Batch& batch, const std::vector<Visit>& visits) noexcept;
  /// Whether `second` has anything to do: ranks then meet between the halves.
  [[nodiscard]] static bool has_second(const Batch& batch) noexcept;

 private:
  int rank_;
  std::vector<const void*> sources_;  // made beforehand: nothing is allocated while data moves
};

}  // namespace tessera
