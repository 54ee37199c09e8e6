#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/measure/timing.hpp"

namespace tessera::bench {

/// Work that can be repeated, and the cost of one run by formula.
struct Case {
  std::string name;
  double bytes = 0;  ///< read and written, each array once
  double flops = 0;
  std::function<void()> run;
  double runs = 1;  ///< operations per run of the case
};

/// The unit that a rate counts.
enum class Work { bytes, flops, runs };

/// One of our operations and its limits on this machine. The closures own their arrays.
struct Contest {
  Work work = Work::bytes;
  Case ours;
  std::vector<Case> limits;
};

/// A case with its times.
struct Timed {
  std::string name;
  double bytes = 0;
  double flops = 0;
  Series series;
  double runs = 1;

  [[nodiscard]] double amount(Work work) const {
    return work == Work::bytes ? bytes : work == Work::flops ? flops : runs;
  }
  /// Rate of the median round, in units per second.
  [[nodiscard]] double rate(Work work) const { return amount(work) / series.median(); }
};

/// Ours and the limits, timed in turn in the same rounds.
struct Comparison {
  Work work = Work::bytes;
  Timed ours;
  std::vector<Timed> limits;

  /// Our rate as a fraction of the limit's: the median over the rounds.
  [[nodiscard]] double ratio(const Timed& limit) const;
  /// The same for each one's quickest round, which other programs disturbed least.
  [[nodiscard]] double best_ratio(const Timed& limit) const;
};

[[nodiscard]] Comparison measure(const Contest& contest, int rounds);

}  // namespace tessera::bench
