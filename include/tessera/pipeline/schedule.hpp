#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Pipeline parallelism: schedules, their times, and the engine that runs them.
namespace tessera::pipeline {

/// What a stage computes for one micro-batch.
enum class Work : std::uint8_t {
  forward,          ///< the stage's output, from the output of the previous stage
  backward,         ///< the gradients of the stage's input and of its weights
  backward_input,   ///< the gradient of the stage's input, for which the previous stage waits
  backward_weight,  ///< the gradients of the stage's weights, for which no stage waits
};

/// Returns "forward", "backward", "backward_input" or "backward_weight".
[[nodiscard]] std::string_view to_string(Work work) noexcept;

/// One entry of a schedule.
struct Action {
  Work work = Work::forward;  ///< what is computed
  int stage = 0;              ///< the stage, from 0, in the order of the forward pass
  int micro_batch = 0;        ///< the micro-batch in its step, from 0

  friend bool operator==(const Action&, const Action&) = default;
};

/// Returns a text such as "forward of micro-batch 3 on stage 1".
[[nodiscard]] std::string to_string(const Action& action);

/// The actions of every rank, in order, in one step of a pipeline. It is plain data: one of the
/// functions below makes it, or the user does and passes it to `check`.
///
/// A rank runs its actions in their order. An action starts once its input has arrived: the output
/// of the previous stage for a forward pass, the gradient from the next stage for a backward pass.
/// Sending does not wait for the receiver.
struct Schedule {
  std::string name;                        ///< the name in messages
  int micro_batches = 1;                   ///< micro-batches in a step
  std::vector<int> rank_of_stage;          ///< by stage: the rank that computes it
  std::vector<std::vector<Action>> ranks;  ///< by rank: its actions, in their order
  /// The most pairs of a stage and a micro-batch whose activations a rank may hold at once (see
  /// most_in_flight). `check` refuses a schedule that exceeds it. Not given: no limit.
  std::optional<int> in_flight_limit = {};

  /// Returns the number of stages.
  [[nodiscard]] int stages() const noexcept { return static_cast<int>(rank_of_stage.size()); }
};

/// Returns the GPipe schedule (Huang et al. 2019): all forward passes, then all backward passes. A
/// rank holds the activations of all micro-batches. Throws ConfigError for fewer than 1 rank or
/// micro-batch, and for more than 2^24 actions.
[[nodiscard]] Schedule gpipe(int ranks, int micro_batches);

/// Returns the 1F1B schedule, one forward and one backward (Narayanan et al. 2019,
/// PipeDream-flush). Of P ranks, rank r starts with P - r forward passes and then alternates: it
/// holds the activations of at most P - r micro-batches. Bubbles are as long as GPipe's. Throws
/// ConfigError for fewer than 1 rank or micro-batch, and for more than 2^24 actions.
[[nodiscard]] Schedule one_forward_one_backward(int ranks, int micro_batches);

/// Returns the interleaved schedule: 1F1B with `chunks` stages on each rank (Narayanan et al.
/// 2021). Of P ranks, rank s modulo P has stage s. Bubbles are shorter by the factor `chunks`, and
/// there are more messages by the same factor. Throws ConfigError unless `micro_batches` is a
/// multiple of `ranks`, for a number below 1, and for more than 2^24 actions.
[[nodiscard]] Schedule interleaved(int ranks, int chunks, int micro_batches);

/// Returns the schedule ZB-H1 (Qi et al. 2023): 1F1B with divided backward passes, so that
/// gradients of weights are computed where 1F1B has bubbles. Of P ranks, every rank holds the
/// activations of at most P micro-batches, as rank 0 does under 1F1B. Throws ConfigError for fewer
/// than 1 rank or micro-batch, and for more than 2^24 actions.
[[nodiscard]] Schedule zero_bubble(int ranks, int micro_batches);

/// Throws ConfigError, with the name of the schedule and its first error, unless the schedule is
/// complete and ends. Every stage has a rank, and a rank has actions of its own stages only. Each
/// micro-batch has one forward pass on each stage and then one backward pass, whole or as both
/// halves in their order. No rank waits forever, and none exceeds `in_flight_limit`. The error for
/// a deadlock says what each rank waits for.
void check(const Schedule& schedule);

/// Returns, by rank, the most pairs of a stage and a micro-batch whose activations the rank holds
/// at once. A pair is held from the start of its forward pass to the end of its backward pass, with
/// the gradients of weights. `schedule` must have passed `check`.
[[nodiscard]] std::vector<int> most_in_flight(const Schedule& schedule);

}  // namespace tessera::pipeline
