#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/plan/use_order.hpp"
#include "engine/unit/gradient_home.hpp"
#include "engine/unit/parameter_home.hpp"
#include "engine/unit/reduce_bucket.hpp"
#include "engine/unit/update_home.hpp"

namespace tessera::engine {

/// One unit of a model on this rank, from `materialize` on: where its parameters, gradients and
/// optimizer state live, and how it is being used. A step of one micro-batch takes it through
///
///   bring - open(forward) - close    bring - open(backward) - close - update
///
/// or `gather_ahead` instead of `bring`. `close` releases gathered parameters that are not needed
/// soon, and sends gradients to their reduction once the micro-batch has no more of them.
///
/// Time: everything enqueues.
class LiveUnit {
 public:
  /// `gradients`, `bucket` and `update` are null in a model for inference. `compute`: the stream of
  /// the trainer. `bucket`: where complete gradients go; it outlives the unit.
  LiveUnit(const UnitPlan& plan, Stream compute, std::unique_ptr<ParameterHome> parameters,
           std::unique_ptr<GradientHome> gradients, ReduceBucket* bucket,
           std::unique_ptr<UpdateHome> update);

  [[nodiscard]] const UnitPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const std::string& name() const noexcept { return plan_.name; }
  [[nodiscard]] ParameterHome& parameters() const noexcept { return *parameters_; }
  [[nodiscard]] GradientHome& gradients() const noexcept { return *gradients_; }
  [[nodiscard]] UpdateHome& update() const noexcept { return *update_; }
  [[nodiscard]] bool trains() const noexcept { return gradients_ != nullptr; }

  // Parameters.

  /// Gathers them unless they are held. They are used next.
  void bring();
  /// Gathers them unless they are held; false if there is no slot.
  [[nodiscard]] bool gather_ahead();
  /// Whether they were gathered ahead and not used since.
  [[nodiscard]] bool gathered_ahead() const noexcept { return gathered_ahead_; }
  /// Releases what is held, used or not.
  void release_parameters();

  // Uses.

  /// A scope of the unit, or of a unit with its aliases, opens. That scope brought the parameters.
  void open(UseKind kind, int micro_batch);
  /// The scope closes. `last`: the step has no later micro-batch.
  void close(UseKind kind, int micro_batch, bool last);
  [[nodiscard]] int open_scopes() const noexcept { return open_scopes_; }
  [[nodiscard]] int open_backward_scopes() const noexcept { return open_backward_scopes_; }

  struct Uses {
    int micro_batch = 0;
    int forward = 0;
    int backward = 0;
  };
  /// The scopes opened so far in a micro-batch in flight.
  [[nodiscard]] Uses uses(int micro_batch) const noexcept;
  /// Whether as many backward scopes as forward scopes were opened.
  [[nodiscard]] bool is_back(int micro_batch) const noexcept {
    return uses(micro_batch).backward == uses(micro_batch).forward;
  }
  /// The earliest micro-batch before `micro_batch` whose gradients are added and whose backward of
  /// this unit has not ended; `micro_batch` if there is none.
  [[nodiscard]] int earlier_on_its_way_back(int micro_batch) const noexcept;
  /// A micro-batch after `micro_batch` whose gradients have begun; `micro_batch` if there is none.
  [[nodiscard]] int later_on_its_way_back(int micro_batch) const noexcept;
  /// Earlier micro-batches open no more backward scopes: what they added is complete.
  void give_up_before(int micro_batch);

  // Micro-batches and steps.

  void begin_step();
  /// Sends gradients that get no more scopes to their reduction.
  void complete_open_gradients(int micro_batch, bool last);
  /// The micro-batch has ended.
  void forget_uses(int micro_batch);
  /// Reduces zeros for the unit if it was not used in this step.
  void reduce_if_missing();

  // Steps whose uses are not counted.

  /// Opens the gradients, also if the step has reduced some already.
  void open_gradients();
  /// What was added since they were opened is complete.
  void complete_gradients(bool last_micro_batch);
  /// Nothing more comes in this step: reduces what was not, zeros if there is nothing.
  void conclude_gradients();

 private:
  void count(UseKind kind, int micro_batch);
  void await_update();
  void leave_parameters(UseKind kind);
  [[nodiscard]] bool awaits_backward() const noexcept;

  const UnitPlan& plan_;
  Stream compute_;
  std::unique_ptr<ParameterHome> parameters_;
  std::unique_ptr<GradientHome> gradients_;
  ReduceBucket* bucket_;
  std::unique_ptr<UpdateHome> update_;
  bool gathered_ahead_ = false;
  int open_scopes_ = 0;
  int open_backward_scopes_ = 0;
  int gradients_of_ = 0;    // the micro-batch that opened them
  std::vector<Uses> uses_;  // by micro-batch in flight
};

}  // namespace tessera::engine
