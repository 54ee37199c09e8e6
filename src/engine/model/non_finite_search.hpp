#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/base/view.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// A value in which non-finite numbers may first appear.
struct Suspect {
  enum class What : std::uint8_t { parameters, output, gradients };

  What what = What::parameters;
  std::size_t unit = 0;
  int micro_batch = 0;
};

/// Finds where a run of skipped steps comes from. Only the step that may be the last of the run is
/// searched: it looks at parameters, watched outputs and gradients as they are computed, in program
/// order. The first one that is not finite, on any rank, is the origin. In all other steps nothing
/// is enqueued.
///
/// Whether a step may be the last follows from the outcome of the step before the previous one. The
/// outcome is needed only where the run would be long enough if all steps since the last known
/// outcome were skipped: `needs_outcome`.
///
/// Order:   a step is   begin_step - look ... - [learn] - end_step   and then its update. All
///          ranks call `origin`; the other calls follow each rank's program, which is the same
///          for all.
/// Time:    `look` enqueues on the compute stream; `origin` waits; the others do neither, but
///          the caller that reads an outcome for `learn` waits for it.
/// Memory:  one double a rank.
class NonFiniteSearch {
 public:
  /// Searches the step that may be the last of `max_skips` skipped in a row; with 0 none.
  /// `staged_units`: all units in the order in which a forward pass opens them, if ranks look at
  /// different ones (pipeline stages), else empty.
  NonFiniteSearch(World& world, std::int64_t max_skips, std::vector<std::size_t> staged_units = {});

  /// `skipped_in_a_row` steps were skipped just before the next one.
  void continue_after(std::int64_t skipped_in_a_row) noexcept;
  /// A step begins.
  void begin_step();
  /// Whether the outcome of the previous step is needed.
  [[nodiscard]] bool needs_outcome() const noexcept;
  /// Takes the outcome of the previous step.
  void learn(const kernels::StepScalars& before) noexcept;
  /// The step's update comes next. Returns whether the step, if skipped, ends the run.
  [[nodiscard]] bool end_step() noexcept;
  [[nodiscard]] bool searching() const noexcept { return searching_; }
  void look(const Suspect& suspect, ConstView values);

  struct Origin {
    Suspect suspect;
    std::vector<int> ranks;  ///< ranks on which it is the first
  };
  /// *Collective.* The origin in this step; empty if everything that was looked at is finite.
  [[nodiscard]] std::optional<Origin> origin();

 private:
  /// The number of a suspect in an order that all stages agree on, from 1.
  [[nodiscard]] double number_in_stages(const Suspect& suspect) const noexcept;
  [[nodiscard]] Suspect suspect_in_stages(double number) const noexcept;

  World& world_;
  std::int64_t max_skips_;
  std::vector<std::size_t> staged_units_;
  std::int64_t most_skipped_ =
      0;  // upper bound of steps skipped in a row, up to the last step that ended
  bool next_may_be_last_;
  bool searching_ = false;
  std::vector<Suspect> suspects_;  // of this step, in order
  Buffer found_;                   // by rank: the number of its first suspect, 0 for none
  OwnedEvent mark_;
};

/// "in the output of unit 'h.1' on rank 2, in micro-batch 1 of 4".
[[nodiscard]] std::string describe(const NonFiniteSearch::Origin& origin, const std::string& unit,
                                   int ranks, int micro_batches);

}  // namespace tessera::engine
