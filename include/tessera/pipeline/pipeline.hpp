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

/// The tensor that one stage passes to the next for a micro-batch: neighbouring elements, equally
/// many between all stages.
struct Boundary {
  std::int64_t elems = 0;     ///< number of elements, 1 or more
  DType dtype = DType::fp32;  ///< type of the elements
};

/// An action that a rank runs now.
struct Turn {
  Action action;  ///< the action
  /// The index of the rank's storage for the activations of this stage and micro-batch, from 0 to
  /// most_in_flight() - 1. From the forward pass to the end of the backward pass no other stage and
  /// micro-batch uses it.
  int slot = 0;
};

/// The functions by which a rank computes. Each enqueues on the compute stream, on which its views
/// of device memory are ready. A view is empty if the stage has no neighbour there.
struct Passes {
  /// Computes the stage's output from its input.
  std::function<void(const Turn& turn, ConstView input, View output)> forward;
  /// Computes the gradient of the stage's input from the gradient of its output, and adds the
  /// gradients of its weights unless the action is Work::backward_input. `input` is the input of
  /// the forward pass.
  std::function<void(const Turn& turn, ConstView input, ConstView output_gradient,
                     View input_gradient)>
      backward;
  /// Adds the gradients of the weights, for Work::backward_weight. `input` is the input of the
  /// forward pass; the first half of the backward pass keeps whatever else is needed. It may be
  /// empty for schedules that do not divide the backward pass.
  std::function<void(const Turn& turn, ConstView input)> backward_weight;
};

/// Runs a schedule on the ranks along the mesh's dimension `pipe`. Each rank runs its actions in
/// their order; tensors between stages are communicated beside them, on streams of their own.
///
/// Order:   every rank of the mesh makes the Pipeline, and calls `run`, at the same place of its
///          program.
/// Time:    `run` enqueues. A turn's work waits on the compute stream for its input, and its output
///          is sent once it is computed. The inputs of the next turns are received while a turn
///          computes.
/// Memory:  the constructor allocates everything: buffers of a boundary's size, as many as the
///          schedule needs, including those for receiving ahead. A stage's input stays until its
///          backward pass has ended. Nothing is copied between stages on one rank. The Pipeline
///          borrows the World.
/// Errors:  ConfigError as `check`, and if the schedule has another number of ranks than the mesh
///          has along `pipe`. ContractError for a boundary without elements, for schedules or
///          dtypes that differ between ranks, and from `run` if the schedule divides backward
///          passes and `backward_weight` is empty, or if a pass threw in an earlier `run`.
///          CommError as the communicators, also if boundaries differ in size between ranks.
class Pipeline {
 public:
  /// *Collective over all ranks of the mesh.* Checks the schedule and allocates the buffers.
  Pipeline(const Mesh& mesh, Schedule schedule, Boundary boundary);
  /// Frees the buffers once nothing enqueued uses them any more.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Enqueues this rank's actions of one step.
  void run(const Passes& passes);

  /// Returns the schedule.
  [[nodiscard]] const Schedule& schedule() const noexcept;
  /// Returns the most pairs of a stage and a micro-batch that this rank has in flight at once.
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
