#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/support/timing.hpp"

namespace tessera::bench {

/// Something that can be run again and again, and what one run costs by formula.
struct Case {
  std::string name;
  double bytes = 0;  ///< read and written, each array once
  double flops = 0;
  std::function<void()> run;
  double runs = 1;  ///< of what it names, within one run of the case
};

/// What a rate counts.
enum class Work { bytes, flops, runs };

/// An operation of ours beside what limits it on this machine. The closures own their arrays.
struct Contest {
  Work work = Work::bytes;
  Case ours;
  std::vector<Case> limits;
};

/// A case that has been timed.
struct Timed {
  std::string name;
  double bytes = 0;
  double flops = 0;
  Series series;
  double runs = 1;

  [[nodiscard]] double amount(Work work) const {
    return work == Work::bytes ? bytes : work == Work::flops ? flops : runs;
  }
  /// Rate of the median round, in units a second.
  [[nodiscard]] double rate(Work work) const { return amount(work) / series.median(); }
};

/// Ours and the limits, timed in turn in the same rounds.
struct Comparison {
  Work work = Work::bytes;
  Timed ours;
  std::vector<Timed> limits;

  /// Our rate as a part of the limit's: the median over the rounds.
  [[nodiscard]] double ratio(const Timed& limit) const;
  /// The same of each one's quickest round, which other programs disturbed least.
  [[nodiscard]] double best_ratio(const Timed& limit) const;
};

[[nodiscard]] Comparison measure(const Contest& contest, int rounds);

}  // namespace tessera::bench
