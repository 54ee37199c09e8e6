#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/gradient_store.hpp"
#include "engine/host_weights.hpp"
#include "engine/journal.hpp"
#include "engine/master_store.hpp"
#include "engine/memory_checks.hpp"
#include "engine/model_life.hpp"
#include "engine/non_finite_search.hpp"
#include "engine/optimizer_step.hpp"
#include "engine/parameter_store.hpp"
#include "engine/plan/sharding.hpp"
#include "engine/schedule.hpp"
#include "engine/unit_state.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "world/world_life.hpp"

namespace tessera {

namespace engine {
/// ConfigError if an option that concerns gathering can have no effect.
void check_resharding(const ModelOptions& options);
/// ConfigError for a fraction that is none, or that nothing uses.
void check_offload(const ModelOptions& options);
}  // namespace engine

/// The engine behind ShardedModel: declaration, passes, step, export, each in a source of its own.
///
/// A micro-batch goes   idle -> forward -> backward -> idle   and ends when the next forward
/// scope, `step` or an export comes. An evaluation lies between two steps and leaves it idle.
struct ShardedModel::State {
  State(World& world_, const ModelOptions& options_);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The ShardedModel ends before a scope or an Evaluation, which the end of the rank's body tells.
  void end_of_model() noexcept;

  // Declaration (model_declare.cpp).
  Unit add_unit(std::string name, std::vector<ParameterSpec> specs, UnitOptions unit_options);
  void check_reshard(const std::string& unit, const UnitOptions& unit_options) const;
  void resolve_aliases(engine::UnitState& unit);
  void decide_residence();
  void declare_order(const std::vector<Unit>& forward);
  void decide_offload();  // model_offload.cpp
  void check_offload(const Optimizer& rule) const;
  void require_no_graph() const;
  [[nodiscard]] std::vector<std::size_t> units_in_forward_order() const;
  void materialize(const Initializer& initial);
  void forget_stores() noexcept;
  // model_initialise.cpp
  [[nodiscard]] Buffer initial_scratch();
  void initialise(std::size_t unit, const Initializer& initial, Buffer& scratch);
  void optimize_with(const Optimizer& optimizer_, const OptimizerOptions& optimizer_options);
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::string describe(const Optimizer& rule,
                                     const OptimizerOptions& rule_options) const;
  void require_rounding(const OptimizerOptions& rule_options) const;
  void require_masters(const Optimizer& rule, const OptimizerOptions& rule_options) const;
  void require_blocks(const OptimizerOptions& rule_options) const;

  // Passes (model_passes.cpp).
  void open(engine::Phase phase, Unit unit);
  void close(engine::Phase phase, Unit unit);
  void close_noexcept(engine::Phase phase, Unit unit, bool unwinding) noexcept;
  void begin_micro_batch();
  void finish_micro_batch();
  void check_gradients_can_open(std::size_t unit) const;
  void use_parameters(std::size_t unit);
  void leave_parameters(std::size_t unit, engine::Phase phase);
  void release_parameters();
  void make_room(std::size_t unit);
  void prefetch(const engine::Schedule& order);
  void step(const double* loss);
  void require_closed(std::size_t unit) const;
  void require_scopes_ended(const char* what) const;
  [[nodiscard]] std::string names_of_open_units() const;
  // model_checks.cpp
  void require_backward() const;
  void compare_gradients(Unit unit);
  void guard_gradients(Unit unit);
  void inspect_gradients(Unit unit);
  void seal_gradients(Unit unit);
  void check_order_across_ranks();

  // Skipped steps (model_skips.cpp).
  void watch(Unit unit, ConstView output);
  void search_parameters(Unit unit);
  void search_gradients(Unit unit);
  void require_loss_scale_known() const;
  void check_if_stuck();
  void stop_if_stuck();
  [[nodiscard]] std::string describe_origin();  // collective
  void rethrow_failure();

  // Evaluation (model_evaluation.cpp).
  void begin_evaluation();
  void end_pass();
  void end_evaluation_noexcept() noexcept;
  void open_in_evaluation(Unit unit);
  void close_in_evaluation(Unit unit);
  void require_training(const char* what) const;

  // Access.
  [[nodiscard]] Unit unit(std::size_t index) const;
  [[nodiscard]] engine::UnitState& unit_at(Unit unit, const char* call);
  /// ContractError that names `call` unless `unit` is of this model.
  void require_mine(Unit unit, const char* call) const;
  [[nodiscard]] engine::ParameterRef find(Unit unit, std::string_view name) const;
  /// Of a tensor of `owner`'s that a scope of `unit` hands out.
  [[nodiscard]] Lifetime lifetime(Unit unit, std::size_t owner, Category category) const;
  [[nodiscard]] ConstTensor parameter(Unit unit, std::string_view name) const;
  [[nodiscard]] Tensor gradient(Unit unit, std::string_view name) const;
  [[nodiscard]] bool has_gradient(Unit unit, std::string_view name) const;
  /// `unit` and the owners of its aliases.
  [[nodiscard]] std::vector<std::size_t> with_owners(std::size_t unit) const;

  // Export (model_export.cpp).
  using Sink = std::function<void(const ParameterInfo&, std::span<const float>)>;
  void export_parameters(const Sink& sink);
  void export_gradients(const Sink& sink);
  using PieceSink =
      std::function<void(const ParameterInfo&, std::int64_t first, std::span<const float>)>;
  void export_masters(const PieceSink& sink);

  enum class Stage : std::uint8_t { idle, forward, backward };

  WorldGuest guest;  // before what lives in the world's memory
  World& world;
  ModelOptions options;
  int uncaught = std::uncaught_exceptions();  // in flight when the model was made
  std::uint32_t number;                       // of the models of the process, from 1
  std::shared_ptr<engine::ModelLife> lives = std::make_shared<engine::ModelLife>();
  engine::Journal journal;
  engine::Units units;
  std::unordered_set<std::string> unit_names;
  std::int64_t declared_elems = 0;  // of all units, padded
  engine::Schedule schedule;
  bool declared = false;                  // the order, by declare_order
  engine::Schedule pass_order;            // of evaluations
  std::optional<engine::Sharding> group;  // from materialize on
  std::unique_ptr<engine::ParameterStore> parameters;
  std::unique_ptr<engine::GradientStore> gradients;   // null in a model for inference
  std::unique_ptr<engine::MasterStore> masters;       // as gradients
  std::unique_ptr<engine::HostWeights> host_weights;  // null unless units are offloaded
  std::unique_ptr<engine::OptimizerStep> optimizer;
  std::unique_ptr<engine::NonFiniteSearch> search;  // as the optimizer
  std::unique_ptr<engine::MemoryChecks> checks;     // null unless Checks::memory

  bool evaluating = false;
  trace::Phase phase_before = trace::Phase::setup;  // the evaluation began
  Stage stage = Stage::idle;
  int micro_batch = 0;  // of the step, from 0
  int open_scopes = 0;
  bool loss_scale_asked = false;
  std::uint32_t next_parameter_id = 0;
  bool stuck_check_due = false;  // after a step that may be the last of too many skipped
  std::vector<engine::Journal::Span> spans;  // by unit: of its open scope
  std::exception_ptr failure;                // from a scope's end; thrown by the next call
};

}  // namespace tessera
