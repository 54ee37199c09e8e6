#include "engine/model/step.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "engine/model/agreement.hpp"
#include "tessera/base/error.hpp"
#include "world/world_access.hpp"

namespace tessera::engine {
namespace {

/// "1st", "22nd", "13th".
std::string ordinal(std::int64_t n) {
  const bool teens = n / 10 % 10 == 1;
  const char* const end = teens         ? "th"
                          : n % 10 == 1 ? "st"
                          : n % 10 == 2 ? "nd"
                          : n % 10 == 3 ? "rd"
                                        : "th";
  return fmt::format("{}{}", n, end);
}

StepReport report_of(std::int64_t step, const OptimizerStep::Outcome& outcome) {
  const kernels::StepScalars& scalars = outcome.scalars;
  return {.step = step,
          .loss = scalars.loss,
          .grad_norm = scalars.grad_norm,
          .clip_coefficient = scalars.clip,
          .lr = outcome.learning_rate,
          .loss_scale = scalars.used_loss_scale,
          .next_loss_scale = scalars.loss_scale,
          .skipped = scalars.apply == 0,
          .skipped_in_a_row = scalars.skipped_in_a_row,
          .without_backward = {}};
}

}  // namespace

Step::Step(World& world, Journal& journal, LiveUnits& units, const OptimizerStep::Setup& setup,
           const std::vector<std::size_t>& passes)
    : world_{world},
      journal_{journal},
      units_{units},
      options_{setup.model},
      optimizer_{world, units, setup},
      search_{world, setup.model.max_skips,
              setup.group.in_stages() ? passes : std::vector<std::size_t>{}},
      givers_{world, setup.model},
      frozen_{describe_frozen(units.plans())},
      in_stages_{setup.group.in_stages()} {}

void Step::check(const double* loss, const LossCount& count) {
  require_loss_scale_known();
  require_slots_free();
  expects(std::isfinite(count.of) && count.of >= 0.0,
          "step: LossCount::of is a number of tokens: at least 0 and finite");
  expects((count.counted != nullptr) == (loss != nullptr && count.of > 0.0),
          "step: LossCount::counted goes with a loss and with LossCount::of");
  change_ = givers_.check(loss != nullptr, count.of > 0.0);
}

std::vector<std::size_t> Step::run(const double* loss, const LossCount& count, UseOrder& order,
                                   const std::string& gradients) {
  units_.gradients().settle();
  GatherLane& gather = units_.parameters().lane();
  gather.settle();
  journal_.enter(trace::Phase::update, "");
  journal_.issue("update", "");
  const Journal::Span span = journal_.begin_span();
  // The label differs between ranks that changed their order and ranks that did not: the latter
  // would not join the comparison. Places along pipe have orders of their own; there the gathers'
  // labels show a difference.
  const bool new_order = order.take_changed() && !in_stages_;
  std::string label = new_order ? "step in a new order of units" : "step";
  if (count.of > 0.0) { label += fmt::format(" of at most {} counted tokens", count.of); }
  optimizer_.reduce_scalars(loss, count, label + gradients + change_ + frozen_);
  if (new_order) { check_order_across_ranks(order); }
  givers_.compare();
  if (search_.needs_outcome()) { search_.learn(optimizer_.scalars()); }
  stuck_check_due_ = search_.end_step();

  std::vector<std::size_t> units = with_the_rest(units_.plans(), order.units());
  optimizer_.update(units);
  for (const LiveUnit& unit : units_) { unit.parameters().drop_stale(); }
  gather.order_after_compute();
  for (const std::size_t u : units) { units_[u].parameters().send_updated(); }
  journal_.end_span("update", "", span);
  journal_.next_step();
  ++made_;
  return units;
}

void Step::plan_runs(std::size_t unit) {
  optimizer_.plan_runs(unit);
  frozen_ = describe_frozen(units_.plans());
}

void Step::continue_after(std::int64_t step, const kernels::StepScalars& scalars) {
  optimizer_.continue_after(scalars);
  search_.continue_after(scalars.skipped_in_a_row);
  givers_.forget();
  journal_.continue_after(step);
  made_ = 0;
  stuck_check_due_ = false;
}

void Step::require_slots_free() const {
  for (const LiveUnit& unit : units_) {
    unit.parameters().require_slots_free();
    unit.gradients().require_slots_free();
  }
}

void Step::check_order_across_ranks(const UseOrder& order) {
  if (!can_disagree(world_)) { return; }
  require_agreement(world_, "the order of units",
                    order.describe([this](std::size_t unit) { return units_[unit].name(); }));
}

// ---------------------------------------------------------------------------------- skipped steps

const float* Step::tell_loss_scale() noexcept {
  loss_scale_asked_ = true;
  return optimizer_.loss_scale();
}

/// A trainer that ignores the scale would have its gradients divided by it for nothing.
void Step::require_loss_scale_known() const {
  const LossScaling& scaling = options_.loss_scaling;
  const bool scales =
      resolve(scaling.mode, options_.compute, options_.gradient) != LossScaleMode::off;
  // In a pipeline, only the ranks that compute the loss ask.
  if (!scales || loss_scale_asked_ || in_stages_ || !world_.device().computes()) { return; }
  throw ContractError{fmt::format(
      "step: loss scaling is {}, but loss_scale() was not called since optimize_with: multiply the "
      "gradient of the loss by *loss_scale() in every micro-batch, or set loss_scaling to off",
      describe(scaling, options_.compute, options_.gradient))};
}

void Step::check_if_stuck() {
  if (!stuck_check_due_ || world::WorldAccess::in_graph(world_)) { return; }
  stuck_check_due_ = false;
  const kernels::StepScalars& scalars = optimizer_.scalars();
  if (scalars.apply != 0) { return; }
  const std::string where = describe_origin();
  throw NumericError{fmt::format(
      "step {}: the gradient is not finite, for the {} time in a row (steps skipped: {}, loss "
      "scale {}); {}; lower the learning rate, or check the data and what that unit computes",
      journal_.step(), ordinal(scalars.skipped_in_a_row), scalars.skipped, scalars.used_loss_scale,
      where)};
}

std::string Step::describe_origin() {
  if (!search_.searching()) {
    return "its origin was not searched for, because optimize_with was called after the step had "
           "begun";
  }
  if (const auto origin = search_.origin()) {
    return "the first non-finite value appeared " + describe(*origin,
                                                             units_[origin->suspect.unit].name(),
                                                             world_.size(), options_.accumulate);
  }
  const bool narrows = size_of(options_.reduce) < size_of(options_.gradient);
  // When deferred, micro-batches are added before the gradients are inspected.
  const bool adds_micro_batches =
      options_.accumulate > 1 &&
      resolve(options_.accumulate_mode, options_.strategy) == AccumulateMode::every;
  return fmt::format("the gradients of each rank are finite, but their sum{} in {} is not",
                     adds_micro_batches ? " over ranks and micro-batches" : "",
                     to_string(narrows ? options_.reduce : options_.gradient));
}

// ---------------------------------------------------------------------------------------- reports

StepReport Step::report() const {
  world_.compute_stream().wait();
  StepReport report = report_of(journal_.step(), optimizer_.last());
  report.without_backward = without_backward_[static_cast<std::size_t>((made_ + 1) % 2)];
  return report;
}

StepReport Step::previous_report() const {
  const OptimizerStep::Outcome outcome = optimizer_.before_last();
  world_.compute_stream().rethrow();  // what ended the stream may have ended the wait
  StepReport report = report_of(journal_.step() - 1, outcome);
  report.without_backward = without_backward_[static_cast<std::size_t>(made_ % 2)];
  return report;
}

}  // namespace tessera::engine
