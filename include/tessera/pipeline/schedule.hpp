#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::pipeline {

/// What a stage does for one micro-batch.
enum class Work : std::uint8_t {
  forward,          ///< computes the stage's output from the output of the stage before
  backward,         ///< computes the gradients of the stage's input and of its weights
  backward_input,   ///< the first half of a backward pass: what the stage before waits for
  backward_weight,  ///< the second half, for which nobody waits
};

/// "forward", "backward", "backward_input", "backward_weight".
[[nodiscard]] std::string_view to_string(Work work) noexcept;

/// One entry of a schedule.
struct Action {
  Work work = Work::forward;
  int stage = 0;        ///< from 0, in the order in which a micro-batch goes forward
  int micro_batch = 0;  ///< from 0

  friend bool operator==(const Action&, const Action&) = default;
};

/// Returns "forward of micro-batch 3 on stage 1".
[[nodiscard]] std::string to_string(const Action& action);

/// Who does what in which order in one step of a pipeline. Plain data: it is built by one of the
/// functions below, or by hand and then passed to `check`.
///
/// A rank makes its actions in their order, and each of them as soon as what it needs has come: a
/// forward pass the output of the stage before, a backward pass the gradient of the stage behind.
/// Sending does not wait for the receiver.
struct Schedule {
  std::string name;                        ///< for messages
  int micro_batches = 1;                   ///< of one rank's step
  std::vector<int> rank_of_stage;          ///< by stage: the rank that has it
  std::vector<std::vector<Action>> ranks;  ///< by rank: its actions, in their order
  /// The most pairs of a stage and a micro-batch that a rank may hold activations of at once (see
  /// most_in_flight), so that `check` refuses a schedule that needs more memory than there is. Not
  /// given: any number.
  std::optional<int> in_flight_limit = {};

  /// Returns the number of stages.
  [[nodiscard]] int stages() const noexcept { return static_cast<int>(rank_of_stage.size()); }
};

/// Returns all forward passes, then all backward passes (Huang et al. 2019). A rank holds the
/// activations of all micro-batches. Throws ConfigError for fewer than 1 rank, stage or
/// micro-batch and for more than 2^24 actions, as
/// the functions below do.
[[nodiscard]] Schedule gpipe(int ranks, int micro_batches);

/// Returns one forward, one backward (Narayanan et al. 2019, PipeDream-flush): rank r begins with
/// P - r forward passes and then alternates, so that it holds the activations of P - r
/// micro-batches at most. Bubbles are GPipe's.
[[nodiscard]] Schedule one_forward_one_backward(int ranks, int micro_batches);

/// Returns 1F1B with `chunks` stages on each rank (Narayanan et al. 2021): stage s is on rank s
/// modulo P. Bubbles are shorter by the factor `chunks`, and messages more by it. Throws
/// ConfigError unless `micro_batches` is a multiple of `ranks`.
[[nodiscard]] Schedule interleaved(int ranks, int chunks, int micro_batches);

/// Returns ZB-H1 (Qi et al. 2023): 1F1B whose backward passes are divided, so that gradients of
/// weights fill what would be bubbles. Every rank holds the activations of P micro-batches at most,
/// as rank 0 of 1F1B does.
[[nodiscard]] Schedule zero_bubble(int ranks, int micro_batches);

/// Throws ConfigError, with the name of the schedule and the first thing that is wrong, unless the
/// schedule is complete and ends: every stage has a rank, every rank has its own stages' actions
/// alone, each micro-batch goes forward and backward once on each stage (backward as a whole, or as
/// both halves in their order, after its forward pass), no rank waits for ever, and none holds more
/// than `in_flight_limit`. A deadlock is told by what each rank waits for.
void check(const Schedule& schedule);

/// Returns by rank how many pairs of a stage and a micro-batch it holds activations of at once, at
/// most: from the beginning of a forward pass to the end of the last part of its backward pass.
/// `schedule` has passed `check`.
[[nodiscard]] std::vector<int> most_in_flight(const Schedule& schedule);

}  // namespace tessera::pipeline
