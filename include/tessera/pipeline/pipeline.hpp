#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/base/dtype.hpp"
#include "tessera/base/view.hpp"
#include "tessera/pipeline/schedule.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::pipeline {

/// What one stage hands to the next for a micro-batch: neighbouring elements, as many between all
/// stages.
struct Boundary {
  std::int64_t elems = 0;
  DType dtype = DType::fp32;
};

/// An action that is a rank's turn.
struct Turn {
  Action action;
  /// Where the rank keeps what its passes for this stage and micro-batch have to remember, from 0
  /// to most_in_flight() - 1. No other pair has the number from the pair's forward pass to the end
  /// of its backward pass.
  int slot = 0;
};

/// What a rank computes. Each function enqueues on the compute stream; views are device memory that
/// is ready on it. Data that a stage has no neighbour for is an empty view.
struct Passes {
  /// Computes the stage's output from its input.
  std::function<void(const Turn& turn, ConstView input, View output)> forward;
  /// Computes the gradient of the stage's input from that of its output, and adds the gradients of
  /// its weights unless the action is Work::backward_input. `input` is that of the forward pass.
  std::function<void(const Turn& turn, ConstView input, ConstView output_gradient,
                     View input_gradient)>
      backward;
  /// Adds the gradients of the weights, for Work::backward_weight. `input` is that of the forward
  /// pass; what else it needs the backward pass has kept. Schedules that do not divide the backward
  /// pass need no such function.
  std::function<void(const Turn& turn, ConstView input)> backward_weight;
};

/// Runs a schedule on the ranks along the mesh's dimension `pipe`: each makes its actions in their
/// order, and what stages hand to each other travels beside them, on streams of its own.
///
/// Order:   every rank of the mesh makes it, and runs it, at the same place of its program.
/// Time:    `run` enqueues. A turn's work waits on the compute stream for what it needs; what it
///          makes leaves when the compute stream has made it. What the next turns need is asked for
///          while a turn computes.
/// Memory:  the constructor allocates everything: buffers of a boundary's size, as many as the
///          schedule needs with what comes next under way. A stage's input stays until its backward
///          pass has ended. Between stages on one rank nothing is copied. It borrows the World.
/// Errors:  ConfigError as `check`, and for a schedule of another number of ranks than the mesh
///          has along `pipe`. ContractError for a boundary without elements, for schedules or
///          dtypes that differ between ranks, and from `run` if the schedule divides backward
///          passes and `backward_weight` is empty, or if a pass threw in an earlier `run`.
///          Otherwise as the communicators, which find boundaries of different sizes.
class Pipeline {
 public:
  /// *Collective over all ranks of the mesh.*
  Pipeline(const Mesh& mesh, Schedule schedule, Boundary boundary);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Makes this rank's actions of one step.
  void run(const Passes& passes);

  /// Returns the schedule.
  [[nodiscard]] const Schedule& schedule() const noexcept;
  /// Returns the number of pairs of a stage and a micro-batch that this rank has in flight at most.
  [[nodiscard]] int most_in_flight() const noexcept;
  /// Returns the bytes of activations that the constructor allocates on the rank at place `place`
  /// along `pipe`: inputs and outputs of stages, and their gradients.
  [[nodiscard]] static std::size_t bytes_needed(const Schedule& schedule, Boundary boundary,
                                                int place);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::pipeline
