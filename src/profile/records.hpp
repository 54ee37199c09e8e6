#pragma once

#include <string>

#include "tessera/memory/category.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera::profile {

/// Whether `record` is an interval of work on a stream.
[[nodiscard]] bool is_span(const trace::Record& record) noexcept;
/// Whether `record` changes the memory in use.
[[nodiscard]] bool is_memory(const trace::Record& record) noexcept;

/// Whether `first` and `second` describe one change. Memory that is used in parts is taken, and
/// released, as two records: one counts all of it, the other subtracts that again.
[[nodiscard]] bool one_change(const trace::Record& first, const trace::Record& second) noexcept;

/// A rank's state, followed through its instants in order: memory in use, phase and unit.
class Progress {
 public:
  /// Applies `record`. Throws ContractError if more is released than is in use.
  void apply(const trace::Record& record);

  [[nodiscard]] const CategoryBytes& in_use() const noexcept { return in_use_; }
  [[nodiscard]] const std::string& phase() const noexcept { return phase_; }
  [[nodiscard]] const std::string& unit() const noexcept { return unit_; }

 private:
  CategoryBytes in_use_;
  std::string phase_;
  std::string unit_;
};

}  // namespace tessera::profile
