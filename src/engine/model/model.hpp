#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/declaration.hpp"
#include "engine/model/evaluation_pass.hpp"
#include "engine/model/export.hpp"
#include "engine/model/gradient_norms.hpp"
#include "engine/model/gradient_sums.hpp"
#include "engine/model/memory_checks.hpp"
#include "engine/model/open_pass.hpp"
#include "engine/model/step.hpp"
#include "engine/model/tensor_lives.hpp"
#include "engine/model/training_pass.hpp"
#include "engine/plan/sharding.hpp"
#include "engine/unit/journal.hpp"
#include "engine/unit/live_units.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/engine/scope.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/engine/tensor.hpp"
#include "world/world_life.hpp"

namespace tessera::engine {

/// The engine behind ShardedModel: takes a model from declaration through passes and steps, and
/// rejects calls that are out of order. Its parts do the work.
///
///   declared --materialize--> ready --optimize_with--> trainable
///
/// An evaluation runs between two steps.
class Model {
 public:
  Model(World& world, const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Called when the ShardedModel is destroyed before a scope or an Evaluation. The end of the
  /// rank's body reports it.
  void end_of_owner() noexcept;
  /// Throws ContractError if the world has ended and `what` is used after it.
  void require_world(const char* what) const { guest_.require_world(what); }

  // Declaration. Calls and errors as in ShardedModel, here and below.
  std::uint32_t add_unit(std::string name, std::vector<ParameterSpec> specs,
                         const UnitOptions& options);
  void declare_order(const std::vector<std::size_t>& forward);
  void materialize(const Initializer& initial);
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options);

  // Passes.
  /// Throws a failure kept from a scope's end, or of too many skipped steps. Throws ContractError
  /// before `materialize`.
  void require_ready() const;
  /// Returns the micro-batch.
  int open(UseKind kind, std::size_t unit, std::optional<int> micro_batch);
  /// Keeps a failure, which the next call throws. `unwinding`: an exception of the caller's ended
  /// the scope.
  void close(UseKind kind, std::size_t unit, int micro_batch, bool unwinding) noexcept;
  /// Opens a unit without counting the use (ShardedModel::open_any).
  void open_any(UseKind kind, std::size_t unit);
  void discard();
  void watch(std::size_t unit, int micro_batch, ConstView output);
  void begin_evaluation();
  void end_pass();
  void end_evaluation() noexcept;
  void step(const double* loss, const LossCount& count);
  /// Throws a failure kept from a scope's end.
  void rethrow_failure() const;

  // Parameters that are frozen for now.
  void freeze(std::size_t unit, std::string_view name) { set_frozen("freeze", unit, name, true); }
  void unfreeze(std::size_t unit, std::string_view name) {
    set_frozen("unfreeze", unit, name, false);
  }

  // Contents of an open scope.
  [[nodiscard]] ConstTensor parameter(std::size_t unit, std::string_view name) const;
  [[nodiscard]] Tensor gradient(std::size_t unit, std::string_view name) const;
  /// The same in a scope of `open_any`, without gradients before the call.
  [[nodiscard]] Tensor open_gradient(std::size_t unit, std::string_view name) const;
  [[nodiscard]] kernels::Write write_of_gradient(std::size_t unit, std::string_view name) const;
  [[nodiscard]] bool has_gradient(std::size_t unit, std::string_view name) const;

  // Between steps.
  /// Throws ContractError naming `call` if there is no optimizer.
  [[nodiscard]] Step& trained(const char* call) const;
  [[nodiscard]] Step* optimizer() const noexcept { return step_.get(); }
  void export_state(StateTensor what, const StateSink& sink);
  void export_masters(const PieceSink& sink);
  [[nodiscard]] std::vector<std::vector<double>> gradient_norms(Norm norm);
  void scale_gradient(std::size_t unit, std::string_view name, float factor);
  void clear_gradient(std::size_t unit, std::string_view name);
  /// Throws ContractError naming `call` unless the model is materialized and between steps.
  void require_between_steps(const char* call) const;
  /// The same, and that no gradients wait for a step.
  void require_no_gradients(const char* call) const;
  /// Resumes after step `step` of another run. Without an optimizer `scalars` is not used.
  void continue_after(std::int64_t step, const kernels::StepScalars& scalars);
  /// The folder of the run whose checkpoint the state was loaded from; empty if there is none.
  [[nodiscard]] const std::string& loaded_run() const noexcept { return loaded_run_; }
  void set_loaded_run(std::string folder) { loaded_run_ = std::move(folder); }

  // Queries.
  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] const ModelOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] std::int64_t steps() const noexcept { return journal_.step(); }
  [[nodiscard]] const UnitPlans& plans() const noexcept { return declaration_.plans(); }
  [[nodiscard]] bool world_ended() const noexcept { return guest_.world_ended(); }
  [[nodiscard]] bool has(std::size_t unit) const { return declaration_.is_here(unit); }
  /// Valid from materialize on.
  [[nodiscard]] LiveUnits& units() const noexcept { return *units_; }
  [[nodiscard]] const Sharding& sharding() const noexcept { return *group_; }
  [[nodiscard]] const std::vector<WholeUnits>& whole_units() const noexcept {
    return declaration_.whole_units();
  }
  [[nodiscard]] ModelStateBytes state_bytes() const;
  [[nodiscard]] bool stays_in_place(std::size_t unit, StateTensor what) const;

 private:
  void take_memory(const Initializer& initial);
  void forget_memory() noexcept;
  void require_training(const char* what) const;
  [[nodiscard]] bool is_materialized() const noexcept { return units_ != nullptr; }
  [[nodiscard]] ParameterRef find(std::size_t unit, std::string_view name) const;
  /// The same for a trained parameter.
  [[nodiscard]] ParameterRef trained(std::size_t unit, std::string_view name) const;
  void set_frozen(const char* call, std::size_t unit, std::string_view name, bool frozen);
  /// *Collective.* Reduces what is not reduced yet. Throws ContractError naming `call` unless the
  /// step's gradients are complete.
  void require_gradients(const char* call);
  /// The same, and throws ConfigError if the host has some of them.
  void require_gradients_on_device(const char* call);
  /// The factor that averages reduced gradients over ranks and micro-batches and takes away the
  /// loss scale. Waits.
  [[nodiscard]] double averaging_factor() const;
  [[nodiscard]] Lifetime lifetime(std::size_t unit, std::size_t owner, Category category) const;
  [[nodiscard]] PassPlace pass_place();

  world::WorldGuest guest_;  // declared before members that live in the world's memory
  World& world_;
  ModelOptions options_;
  int uncaught_ = std::uncaught_exceptions();  // exceptions in flight when the model was made
  std::uint32_t number_;                       // counts the models of this process, from 1
  std::shared_ptr<TensorLives> lives_ = std::make_shared<TensorLives>();
  std::string loaded_run_;
  Journal journal_;
  Declaration declaration_;
  UseOrder evaluation_order_;
  std::vector<std::size_t> update_order_;

  // Set by materialize. Null for inference, or unless Checks::memory.
  std::optional<Sharding> group_;
  std::unique_ptr<LiveUnits> units_;
  std::unique_ptr<MemoryChecks> checks_;
  std::unique_ptr<TrainingPass> training_;
  std::unique_ptr<OpenPass> open_pass_;
  std::unique_ptr<GradientSums> sums_;
  std::unique_ptr<EvaluationPass> evaluation_;
  std::unique_ptr<Step> step_;  // set by optimize_with

  Scalings scalings_;  // of this step

  bool evaluating_ = false;
  trace::Phase phase_before_ = trace::Phase::setup;  // the phase in which the evaluation began
  std::exception_ptr failure_;                       // kept from a scope's end
};

}  // namespace tessera::engine
