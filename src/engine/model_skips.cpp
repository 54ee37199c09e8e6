#include <fmt/format.h>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

// Steps whose gradient is not finite: where that comes from, and when it has come too often.
namespace tessera {

using engine::Suspect;

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

}  // namespace

void ShardedModel::State::watch(Unit unit, ConstView output) {
  if (checks && !evaluating) { checks->inspect_output(unit.index(), output); }
  if (evaluating || !search || !search->searching()) { return; }
  search->look({Suspect::What::output, unit.index(), micro_batch}, output);
}

// Whoever brought them there, a unit that computes with them gives nothing better.
void ShardedModel::State::search_parameters(Unit unit) {
  if (!search || !search->searching()) { return; }
  for (const std::size_t u : with_owners(unit.index())) {
    for (std::size_t s = 0; s < units[u].layout.segments().size(); ++s) {
      search->look({Suspect::What::parameters, u, micro_batch}, parameters->whole(u, s));
    }
  }
}

// As they are on this rank, before they are added to those of the others.
void ShardedModel::State::search_gradients(Unit unit) {
  if (!search || !search->searching()) { return; }
  for (const std::size_t u : with_owners(unit.index())) {
    if (!gradients->is_open(u)) { continue; }
    for (std::size_t s = 0; s < units[u].layout.segments().size(); ++s) {
      search->look({Suspect::What::gradients, unit.index(), micro_batch}, gradients->whole(u, s));
    }
  }
}

/// A trainer that does not know of the scale would have its gradients divided by it for nothing.
void ShardedModel::State::require_loss_scale_known() const {
  const bool scales =
      resolve(options.loss_scaling.mode, options.compute, options.gradient) != LossScaleMode::off;
  if (!scales || loss_scale_asked || !world.device().computes()) { return; }
  throw ContractError{
      fmt::format("step: loss scaling is {}, but loss_scale() has not been asked for since "
                  "optimize_with: multiply the gradient of the loss by *loss_scale() in every "
                  "micro-batch, or set loss_scaling to off",
                  tessera::describe(options.loss_scaling, options.compute, options.gradient))};
}

std::string ShardedModel::State::describe_origin() {
  if (!search->searching()) {
    return "where that arose was not looked for, as the optimizer came after the step had begun";
  }
  if (const auto origin = search->origin()) {
    return "the first value that is not finite arose " +
           engine::describe(*origin, units[origin->suspect.unit].name, world.size(),
                            options.accumulate);
  }
  const bool narrows = size_of(options.reduce) < size_of(options.gradient);
  // Deferred, micro-batches are added before the gradients are looked at.
  const bool adds_micro_batches =
      options.accumulate > 1 &&
      resolve(options.accumulate_mode, options.strategy) == AccumulateMode::every;
  return fmt::format("the gradients of each rank are finite, their sum{} in {} is not",
                     adds_micro_batches ? " over ranks and micro-batches" : "",
                     to_string(narrows ? options.reduce : options.gradient));
}

// What became of a step within a graph is known when the graph has run.
void ShardedModel::State::check_if_stuck() {
  if (!stuck_check_due || world.in_graph()) { return; }
  stuck_check_due = false;
  stop_if_stuck();
}

void ShardedModel::State::stop_if_stuck() {
  const kernels::StepScalars& scalars = optimizer->scalars();
  if (scalars.apply != 0) { return; }
  const std::string where = describe_origin();
  throw NumericError{
      fmt::format("step {}: the gradient is not finite, for the {} time in a row (steps skipped: "
                  "{}, loss scale "
                  "{}); {}; lower the learning rate, or check the data and what that unit computes",
                  journal.step(), ordinal(scalars.skipped_in_a_row), scalars.skipped,
                  scalars.used_loss_scale, where)};
}

}  // namespace tessera
