#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::test {

/// A small language model written at the pointer level, with every special case of a layout: odd
/// sizes, a root unit used at both ends, a table tied across units, and a frozen parameter.
///
///   x = table[token];  x = tanh(x W_i + b_i) * s_i (s frozen), i < blocks;  loss = CE(x table^T)
///
/// `tied_head` puts the head in a unit of its own whose table is an alias of the root's; otherwise
/// the root is opened twice. Parameters and gradients may be of any dtype; activations and all
/// arithmetic are fp32, and each addition to a gradient is rounded.
struct ToyConfig {
  std::int64_t vocab = 13;
  std::int64_t hidden = 7;
  int blocks = 3;
  int batch = 3;  ///< tokens per rank and micro-batch
  bool tied_head = true;
  bool head_bias = true;  ///< if the head is a separate unit
  bool declared_order = false;
  std::optional<DType> small_dtype = {};  ///< of biases and scales, if different from the model's
  std::int64_t room = 0;                  ///< after the table
  std::uint64_t seed = 5;
};

class ToyModel {
 public:
  ToyModel(World& world, const ModelOptions& options, const ToyConfig& config);

  /// Runs one micro-batch; returns this rank's mean loss. `global_row` numbers its first token in
  /// the whole job's data, so that any division into ranks and micro-batches sees the same tokens.
  double forward_backward(std::int64_t global_row, int rows);
  /// Only the forward part, as in an evaluation.
  double forward(std::int64_t global_row, int rows);
  /// Forward and backward of micro-batch `micro_batch`, for several in flight.
  double forward_in_flight(int micro_batch, std::int64_t global_row, int rows);
  void backward_in_flight(int micro_batch);

  /// The next backward of block `block` adds this to the gradient of its bias.
  void spoil_next(std::size_t block, float value) { spoilt_ = {block, value}; }

  [[nodiscard]] ShardedModel& model() noexcept { return model_; }
  [[nodiscard]] Unit root() const noexcept { return root_; }
  [[nodiscard]] const std::vector<Unit>& blocks() const noexcept { return blocks_; }

 private:
  [[nodiscard]] bool has_head_bias() const { return config_.tied_head && config_.head_bias; }
  using Matrix = std::vector<float>;  // [rows, hidden] or [rows, vocab]
  struct Pass {
    std::vector<int> tokens;
    std::vector<Matrix> x;
    Matrix dlogits;
    double loss = 0.0;
  };
  Pass run_forward(std::int64_t global_row, int rows);
  void run_backward(const Pass& pass);
  [[nodiscard]] ForwardScope open_forward(Unit unit);
  [[nodiscard]] BackwardScope open_backward(Unit unit);
  void embed(const std::vector<int>& tokens, Matrix& x);
  void block_forward(std::size_t i, const Matrix& x, Matrix& y);
  double head(const std::vector<int>& targets, const Matrix& x, Matrix& probabilities);
  void head_backward(const Matrix& x, const Matrix& dlogits, Matrix& dx);
  void block_backward(std::size_t i, const Matrix& x, const Matrix& y, const Matrix& dy,
                      Matrix& dx);
  void spoil(std::size_t block, const BackwardScope& scope);
  void embed_backward(const std::vector<int>& tokens, const Matrix& dx);

  ToyConfig config_;
  ShardedModel model_;
  Unit root_;
  Unit head_;
  std::vector<Unit> blocks_;
  std::optional<std::pair<std::size_t, float>> spoilt_;
  std::optional<int> micro_batch_;  // the micro-batch to open scopes for, if given
  std::map<int, Pass> in_flight_;   // by micro-batch
};

/// A value, not finite, that one rank adds to a gradient in the backward of block 1.
struct Spoilt {
  float value = 0.0F;
  int rank = 0;
  int step = 0;  ///< from 0
  int micro_batch = 0;
};

/// A training run of the toy on `ranks` in-process ranks.
struct ToyRun {
  ToyConfig toy = {};
  ModelOptions options = {};
  WorldOptions world = {};
  Optimizer optimizer = AdamW{.lr = 0.02F};
  float clip_norm = 0.5F;
  OptimizerOptions optimizer_options = {};  ///< except clip_norm
  int ranks = 1;
  int steps = 12;
  std::vector<Spoilt> spoilt = {};
  /// The passes of a step, such as "FFBFBB": F is the forward of the next micro-batch, B the
  /// backward of the earliest one that still needs it. Empty: one micro-batch after the other.
  std::string schedule = {};
  /// Reads the norms of gradients before each step, and halves the gradients of a block.
  bool halves_a_block = false;
};

struct ToyOutcome {
  std::vector<double> losses;
  std::vector<double> norms;  ///< of each step, after those that were read before it
  std::map<std::string, std::vector<float>> parameters;       ///< after the last step
  std::map<std::string, std::vector<float>> first_gradients;  ///< of step 1, averaged
  /// Fp32, after the last step: joined from the parts that each rank updates (in-process ranks
  /// only).
  std::map<std::string, std::vector<float>> masters;
  bool clipped = false;  ///< in at least one step
  std::vector<float> loss_scales;
  std::vector<bool> skipped;
};

[[nodiscard]] ToyOutcome run_toy(const ToyRun& run);

/// Bounds of what runs of the toy in fp32 differ by, which add gradients in different orders.
struct ToyBounds {
  double gradient = 0.0;  ///< relative to a tensor's norm, like the norm of all
  double loss = 0.0;      ///< relative to the first loss, after any number of steps
};
[[nodiscard]] ToyBounds between_orders(const ToyConfig& toy, std::int64_t rows_a_step);
[[nodiscard]] ToyBounds between_orders(const ToyRun& run);

/// How to run a body on ranks: by run_ranks, or by run in a job of processes.
using StartRanks =
    std::function<void(int, const std::function<void(World&)>&, const WorldOptions&)>;
/// The same; only rank 0's process gets the outcome.
[[nodiscard]] ToyOutcome run_toy(const ToyRun& run, const StartRanks& start);

/// The names of results that differ between two outcomes in any bit; empty if none do.
[[nodiscard]] std::string difference(const ToyOutcome& a, const ToyOutcome& b);

/// Every parameter, or the averaged gradients, of a model by full name.
[[nodiscard]] std::map<std::string, std::vector<float>> exported(ShardedModel& model,
                                                                 StateTensor what);

}  // namespace tessera::test
