#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/pipeline/pipeline.hpp"

namespace tessera::test {

/// What a run of a stack has made, by name ("output of micro-batch 2"). Ranks that are threads
/// share one.
class StackOutcome {
 public:
  /// Returns where `name` is kept, with room for `elems`.
  float* add(const std::string& name, std::int64_t elems);
  [[nodiscard]] const std::map<std::string, std::vector<float>>& all() const { return all_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<float>> all_;
};

/// One rank's stages of y = gelu(x W), each with a weight of its own, under the loss |y|^2 / 2 of
/// the last one's output. It remembers by slot, and only what the backward passes need: a slot or
/// a boundary that somebody else writes too early gives other bits.
class Stack {
 public:
  static constexpr pipeline::Boundary kBoundary{.elems = 15, .dtype = DType::fp32};

  /// `data`: which rows the rank computes with.
  Stack(World& world, const pipeline::Schedule& schedule, int slots, int data = 0);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  /// Outputs of the last stage and input gradients of the first are written to `outcome`.
  [[nodiscard]] pipeline::Passes passes(StackOutcome& outcome);
  /// Writes the gradients of the weights of the stages that this rank has computed.
  void write_gradients(StackOutcome& outcome);

 private:
  struct Stage {
    Buffer weight;
    Buffer gradient;
  };
  [[nodiscard]] Stage& stage(int number);
  [[nodiscard]] std::string name(const char* what, int number) const;
  void forward(const pipeline::Turn& turn, ConstView input, View output, StackOutcome& outcome);
  void backward(const pipeline::Turn& turn, ConstView input, ConstView output_gradient,
                View input_gradient, StackOutcome& outcome);
  void backward_weight(const pipeline::Turn& turn, ConstView input);
  [[nodiscard]] ConstView data_of(int micro_batch) const;
  [[nodiscard]] View at_slot(const Buffer& buffer, int slot) const;

  World& world_;
  int stages_;
  int data_;
  Buffer inputs_;    // of the first stage, by micro-batch
  Buffer outputs_;   // by slot: the last stage's, and so the gradient of the loss
  Buffer products_;  // by slot: x W
  Buffer product_gradients_;
  std::map<int, Stage> by_stage_;
};

/// Runs `steps` steps of `schedule` as ranks along `pipe` of `mesh`, and writes what comes out.
void run_stack(const Mesh& mesh, const pipeline::Schedule& schedule, int steps,
               StackOutcome& outcome);

/// Returns what one rank gets that makes one micro-batch after the other, and adds the gradients of
/// a weight in the order in which `schedule` does.
[[nodiscard]] std::map<std::string, std::vector<float>> stack_on_one_rank(
    const pipeline::Schedule& schedule, int steps, DeviceKind device, int data_ranks = 1);

/// The schedule's order and its timeline, for a test that has failed.
[[nodiscard]] std::string text_of(const pipeline::Schedule& schedule);

}  // namespace tessera::test
