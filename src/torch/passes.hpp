#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "torch/gradient_stand_ins.hpp"
#include "torch/module_units.hpp"
#include "torch/parameter_home.hpp"

namespace tessera::torch {

/// An operator's use of a place.
struct Use {
  Place* place;
  bool writes;
  bool records;  ///< whether autograd would record it: gradients are wanted
};

/// The passes of a sharded module over its ShardedModel. They derive which units are open from the
/// operators that use their parameters and from the gradients that autograd makes.
///
///   idle --begin_forward--> forward --end_forward--> between --backward--> between
///   between --end_step--> idle
///   idle or between --begin_evaluation--> evaluation (forwards within) --end_evaluation--> as
///   before
///   idle: an operator without gradients reads parameters, as in an evaluation that lasts until the
///   next call
///
/// A unit opens with the first operator that uses it and closes when one uses another unit, unless
/// that one lies within it or an operator has used both. In a backward pass it also closes once the
/// last of its gradients that the loss reaches was added. It can be opened again at any time: its
/// gradients are reduced at each close, under every strategy alike, so that the sums have the same
/// bits. A forward pass without gradients is an evaluation of its own.
///
/// Threads: those of autograd while `backward` runs, one at a time; otherwise the rank's own.
class Passes {
 public:
  /// Declares the units in `model`, in the same order.
  Passes(ShardedModel& model, const std::vector<ModuleUnit>& units);
  ~Passes();
  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;

  /// Called after materialize: removes the module's own memory and watches its gradients.
  void adopt();

  /// Opens the units that an operator uses, whose stand-ins of gradients have been seen to. Throws
  /// ContractError if that is not possible. Any thread of the pass.
  static void use(std::span<const Use> uses, const std::string& op);

  /// Whether a forward pass that begins now can be trained.
  [[nodiscard]] bool will_train() const noexcept;
  void begin_forward();
  /// Closes the open units at the end of the outermost forward pass.
  void end_forward();
  void begin_evaluation();
  void end_evaluation();
  /// Whether this is between the passes of a step.
  [[nodiscard]] bool between() const noexcept {
    return phase_ == Phase::between && evaluation_ == nullptr;
  }
  /// Runs autograd from `loss` times `scale`, through the passes of all of these modules; `scale`
  /// is on the loss's device.
  static void backward(std::span<Passes* const> all, const at::Tensor& loss,
                       const at::Tensor& scale, bool retain_graph);
  /// Gives back the units that operators between passes and outside them have opened. They open
  /// again when needed.
  void close_everything();
  /// Ends what operators outside passes read.
  void end_reading() {
    if (reads_) { close_everything(); }
  }
  /// Whether this thread may use parameters now: it is the rank's, or a backward pass is under way,
  /// which autograd runs on threads of its own.
  [[nodiscard]] bool is_at_home() const noexcept {
    return owner_ == std::this_thread::get_id() || phase_ == Phase::backward;
  }
  /// The step's passes have ended: parameters cannot be read until the next.
  void end_step();
  /// Drops the gradients of this step. Throws ContractError within a pass.
  void discard();
  /// The same, and the step goes on: passes that were made can still be trained.
  void drop_gradients();
  /// Called before a step's update: parameters that all of its backward passes found frozen
  /// (set_requires_grad(false)) are left as they are.
  void freeze_untrained();
  /// Called between steps: autograd rejects earlier graphs.
  void parameters_changed();

  /// A part of a forward pass that runs again in the backward pass (recompute.cpp): units used
  /// between these two calls are noted, and wait for `run_again`. Regions nest.
  void begin_region();
  [[nodiscard]] std::vector<std::size_t> end_region(bool kept);
  /// In a backward pass: the region of `units` has run again, and gradients will arrive through
  /// `outputs`.
  void run_again(const std::vector<std::size_t>& units, std::span<const at::Tensor> outputs);

  /// Returns the passes of the sharded module whose pass this thread is in, or null.
  [[nodiscard]] static Passes* current() noexcept;

  [[nodiscard]] std::deque<ParameterHome>& homes() noexcept { return homes_; }
  [[nodiscard]] GradientStandIns& stand_ins() noexcept { return stand_ins_; }
  [[nodiscard]] World& world() const { return model_.world(); }
  /// Expires with this object.
  [[nodiscard]] std::weak_ptr<const bool> alive() const noexcept { return alive_; }
  /// Makes this the thread's current one, and returns the previous one.
  static Passes* make_current(Passes* passes) noexcept;

 private:
  enum class Phase : std::uint8_t { idle, forward, between, backward };

  struct LiveUnit {
    Unit unit;
    std::optional<std::size_t> parent;
    std::vector<ParameterHome*> homes;
    std::optional<ForwardScope> evaluation;
    std::optional<OpenScope> training;
    bool has_gradients = false;  // while open
    int expected = 0;            // gradients that the loss reaches and that have not arrived
    int regions = 0;             // regions that have not run again
    [[nodiscard]] bool is_open() const noexcept { return evaluation || training; }
  };

  struct Evaluating {
    Evaluation evaluation;
  };

  /// An operator reads outside all passes: parameters can be read from here on. Throws
  /// ContractError if autograd would record it.
  void read_outside(const Use& use, const std::string& op);
  void open_all(const std::vector<std::size_t>& wanted);
  void open(std::size_t index, const std::vector<std::size_t>& wanted);
  void open_scope(LiveUnit& unit);
  void open_gradients(std::size_t index);
  void close(std::size_t index);
  /// Closes open units that contain none of `wanted` and, if `alone`, also those that an operator
  /// has used together with one of them.
  void close_unused(const std::vector<std::size_t>& wanted, bool alone);
  void forget_scopes() noexcept;
  [[nodiscard]] bool contains(std::size_t outer, std::size_t inner) const;
  void begin_backward(const at::Tensor& loss);
  void end_backward();
  void expect_from(std::span<const at::Tensor> outputs);
  void train(ParameterHome& home);
  void gradient_comes(ParameterHome& home);
  void gradient_added(ParameterHome& home, const ::torch::autograd::Node& accumulator);

  ShardedModel& model_;
  std::deque<ParameterHome> homes_;
  GradientStandIns stand_ins_{model_, homes_};
  std::vector<LiveUnit> units_;
  std::vector<std::size_t> open_;  // units with an open scope
  std::set<std::pair<std::size_t, std::size_t>>
      pairs_;  // units that one operator has used together
  // Accumulators whose gradients will arrive: once for each separately run graph that reaches them.
  std::multiset<const ::torch::autograd::Node*> expected_;
  // Owning pointers, of a class that differs between versions of libtorch.
  std::vector<decltype(::torch::autograd::impl::grad_accumulator(at::Tensor{}))> accumulators_;
  std::vector<std::vector<std::size_t>>
      regions_;  // regions that are running, and the units they used
  std::unique_ptr<Evaluating> evaluation_;
  std::shared_ptr<const bool> alive_;  // checked by hooks that outlive this object
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  Phase phase_ = Phase::idle;
  Phase before_evaluation_ = Phase::idle;
  bool evaluates_one_pass_ = false;  // a forward pass without gradients
  bool reads_ = false;               // the evaluation is of operators outside passes
  int opened_ = 0;                   // units in it
  std::thread::id owner_ = std::this_thread::get_id();
  int depth_ = 0;  // nesting of forward passes
};

}  // namespace tessera::torch
