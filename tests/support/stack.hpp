#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/pipeline/pipeline.hpp"

namespace tessera::test {

/// The results of a run of a stack, by name ("output of micro-batch 2"). Ranks that are threads
/// share one.
class StackOutcome {
 public:
  /// Returns the memory of `name`, with room for `elems`.
  float* add(const std::string& name, std::int64_t elems);
  [[nodiscard]] const std::map<std::string, std::vector<float>>& all() const { return all_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<float>> all_;
};

/// The weights of a stack's stages on one rank.
class StackWeights {
 public:
  static constexpr std::int64_t kWidth = 5;
  /// `gradient` is null in a forward pass.
  using Use = std::function<void(ConstValues weight, Values gradient)>;

  virtual ~StackWeights() = default;
  /// Calls `use` to enqueue a turn's work with the weight [kWidth, kWidth] of its stage.
  virtual void with(const pipeline::Turn& turn, const Use& use) = 0;
};

/// Weights and gradients in buffers, for tests without an engine.
class PlainWeights final : public StackWeights {
 public:
  explicit PlainWeights(World& world) : world_{world} {}
  void with(const pipeline::Turn& turn, const Use& use) override;
  /// Writes the gradients of the computed stages, and waits.
  void write_gradients(StackOutcome& outcome, int data);

 private:
  struct Stage {
    Buffer weight;
    Buffer gradient;
  };
  World& world_;
  std::map<int, Stage> stages_;
};

/// One rank's stages of y = gelu(x W), with the loss |y|^2 / 2 of the last output. It keeps only
/// what the backward passes need, by slot: writing a slot or a boundary too early changes the bits.
class Stack {
 public:
  static constexpr pipeline::Boundary kBoundary{.elems = 3 * StackWeights::kWidth,
                                                .dtype = DType::fp32};

  /// `data`: the index of the rows that the rank computes with.
  Stack(World& world, const pipeline::Schedule& schedule, StackWeights& weights, int slots,
        int data = 0);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  /// The passes write outputs of the last stage and input gradients of the first to `outcome`.
  [[nodiscard]] pipeline::Passes passes(StackOutcome& outcome);

 private:
  void forward(const pipeline::Turn& turn, ConstView input, View output, StackOutcome& outcome);
  void backward(const pipeline::Turn& turn, ConstView input, ConstView output_gradient,
                View input_gradient, StackOutcome& outcome);
  void add_gradient(const pipeline::Turn& turn, ConstView input, Values gradient);
  [[nodiscard]] ConstView data_of(int micro_batch) const;
  [[nodiscard]] View at_slot(const Buffer& buffer, int slot) const;

  World& world_;
  StackWeights& weights_;
  int stages_;
  int data_;
  Buffer inputs_;    // of the first stage, by micro-batch
  Buffer outputs_;   // by slot: the last stage's, which are also the gradient of the loss
  Buffer products_;  // by slot: x W
  Buffer product_gradients_;
};

/// Runs one step of a stack on one rank with all stages: one micro-batch after the other, adding
/// the gradients of a weight in the order of `schedule`.
class StackAlone {
 public:
  StackAlone(World& world, const pipeline::Schedule& schedule, StackWeights& weights, int data = 0);
  void run(StackOutcome& outcome);

 private:
  const pipeline::Schedule& schedule_;
  Stack stack_;
  Buffer outputs_;  // by stage and micro-batch
  Buffer gradients_;
};

/// Runs `steps` steps of `schedule` on ranks along `pipe` of `mesh`, with plain weights, and writes
/// the results.
void run_stack(const Mesh& mesh, const pipeline::Schedule& schedule, int steps,
               StackOutcome& outcome);

/// Returns the results that `run_stack` must write, over all ranks.
[[nodiscard]] std::map<std::string, std::vector<float>> stack_on_one_rank(
    const pipeline::Schedule& schedule, int steps, DeviceKind device, int data_ranks = 1);

/// The schedule's order and its timeline, for the message of a failed test.
[[nodiscard]] std::string text_of(const pipeline::Schedule& schedule);

}  // namespace tessera::test
