#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "comm/rendezvous/frame.hpp"

namespace tessera {

/// Ranks that say that they are held up within the submission of a batch, until all of its ranks
/// have come: they are not to be blamed for calls that they do not come to meanwhile.
class HeldRanks {
 public:
  struct Call {
    CallSeries series;
    std::uint64_t sequence;
    friend bool operator==(const Call&, const Call&) = default;
  };

  void hold(int rank, const Call& call) { held_.insert_or_assign(rank, call); }
  /// Unless it is held elsewhere by now.
  void release(int rank, const Call& call);

  /// Those that have not come to a call.
  using Missing = std::function<std::vector<int>(const Call& call)>;
  struct Cause {
    Call call;
    std::vector<int> missing;  ///< there
  };
  /// Those of `missing` who are not held up: nobody else is to be blamed.
  [[nodiscard]] std::vector<int> free_of(const std::vector<int>& missing) const;
  /// Who keeps `waited_for`, who are all held up, in the end: ranks that are not. Nothing where no
  /// such rank is found, as where ranks wait for each other.
  [[nodiscard]] std::optional<Cause> cause(std::vector<int> waited_for,
                                           const Missing& missing) const;

 private:
  std::map<int, Call> held_;
};

}  // namespace tessera
