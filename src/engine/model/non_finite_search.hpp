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

/// Something in which a value that is not finite may first appear.
struct Suspect {
  enum class What : std::uint8_t { parameters, output, gradients };

  What what = What::parameters;
  std::size_t unit = 0;
  int micro_batch = 0;
};

/// Finds where a run of skipped steps comes from. In the one step that may be the last of the run,
/// parameters, watched outputs and gradients are looked at as they come into being, in the order of
/// the program; the first that is not finite, on any rank, is the origin. In all other steps
/// nothing is enqueued.
///
/// Which steps may be the last follows from the outcome of the step before the previous one. It has
/// to be known only where the run could be that long if all steps since the last known outcome were
/// skipped: `needs_outcome`.
///
/// Order:   a step is   begin_step - look ... - [learn] - end_step   and then its update. `origin`
///          is made by all ranks; the others by each as its program goes, which is the same for
///          all.
/// Time:    `look` enqueues on the compute stream; `origin` waits; the others do neither, but
///          whoever reads an outcome for `learn` waits for it.
/// Memory:  one double a rank.
class NonFiniteSearch {
 public:
  /// The step that is the last of `max_skips` skipped in a row is searched; with 0 none is.
  /// `staged_units`: all units in the order in which a forward pass opens them, if ranks look at
  /// different ones (pipeline stages), else empty.
  NonFiniteSearch(World& world, std::int64_t max_skips, std::vector<std::size_t> staged_units = {});

  /// So many steps in a row have been skipped before the next one.
  void continue_after(std::int64_t skipped_in_a_row) noexcept;
  /// A step begins.
  void begin_step();
  /// Whether it matters what came of the step before this one.
  [[nodiscard]] bool needs_outcome() const noexcept;
  /// What came of the step before this one.
  void learn(const kernels::StepScalars& before) noexcept;
  /// The step's update comes next: whether the step ends the run if it is skipped.
  [[nodiscard]] bool end_step() noexcept;
  [[nodiscard]] bool searching() const noexcept { return searching_; }
  void look(const Suspect& suspect, ConstView values);

  struct Origin {
    Suspect suspect;
    std::vector<int> ranks;  ///< on which it is the first
  };
  /// *Collective.* Of this step; empty if everything was finite that has been looked at.
  [[nodiscard]] std::optional<Origin> origin();

 private:
  /// The place of a suspect in the order that all stages agree on, from 1.
  [[nodiscard]] double number_in_stages(const Suspect& suspect) const noexcept;
  [[nodiscard]] Suspect suspect_in_stages(double number) const noexcept;

  World& world_;
  std::int64_t max_skips_;
  std::vector<std::size_t> staged_units_;
  std::int64_t most_skipped_ = 0;  // in a row, up to the last step that ended; it may be fewer
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
