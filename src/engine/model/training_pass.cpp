#include "engine/model/training_pass.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "engine/rules/options.hpp"
#include "tessera/base/error.hpp"
#include "world/world_access.hpp"

namespace tessera::engine {

void require_no_graph(const World& world, const ModelOptions& options) {
  if (world::WorldAccess::in_graph(world)) { validate_in_graph(options); }
}

// ---------------------------------------------------------------------------------------- scopes

int TrainingPass::open(UseKind kind, std::size_t index, std::optional<int> given) {
  const bool backward = kind == UseKind::backward;
  if (!backward && given && *given == begun_) {  // a rejected call begins nothing
    require_closed(index);
    make_room(index);
  }
  MicroBatch& of = backward ? backward_of(index, given) : forward_of(given);
  require_closed(index);
  require_none_later(kind, index, of.index);
  if (backward) {
    for_gradients(index, 0, [&](std::size_t u) { setup_.checks->compare(u); });
    check_gradients_can_open(index, of.index);
  }
  make_room(index);
  const Use use = use_of(kind, index, of.index);
  if (backward) { of.stage = Stage::backward; }
  bring(use, backward ? trace::Phase::backward : trace::Phase::forward);
  enter(use, of.index);
  ++of.open_scopes;
  if (backward) {
    for_gradients(index, 1, [&](std::size_t u) {
      unit(u).gradients().zero_unwritten();
      setup_.checks->guard(u);
    });
  } else {
    search_parameters(index, of.index);
  }
  begin_span(use);
  return of.index;
}

void TrainingPass::close(UseKind kind, std::size_t index, int micro_batch) {
  const bool backward = kind == UseKind::backward;
  const Use use = use_of(kind, index, micro_batch);
  end_span(use);
  if (backward) {
    for (const std::size_t u : owners_and(index)) {
      unit(u).gradients().require_taken(index, unit(index).name());
    }
    search_gradients(index, micro_batch);
    for_gradients(index, 1, [&](std::size_t u) { setup_.checks->inspect(u); });
  }
  leave(use, micro_batch, is_last(micro_batch));
  --find(micro_batch)->open_scopes;
  if (backward) {
    for_gradients(index, 0, [&](std::size_t u) { setup_.checks->seal(u); });
  }
}

void TrainingPass::open_read(std::size_t index, int micro_batch) {
  MicroBatch* const of = find(micro_batch);
  if (of == nullptr) {
    throw ContractError{fmt::format(
        "read of unit '{}' in micro-batch {}, which is not in flight; open its forward scope first",
        unit(index).name(), micro_batch)};
  }
  require_closed(index);
  make_room(index);
  const Use use = use_of(UseKind::read, index, micro_batch);
  bring(use, trace::Phase::backward);
  enter(use, micro_batch);
  ++of->open_scopes;
  begin_span(use);
}

void TrainingPass::close_read(std::size_t index, int micro_batch) {
  const Use use = use_of(UseKind::read, index, micro_batch);
  end_span(use);
  leave(use, micro_batch, /*last=*/false);
  --find(micro_batch)->open_scopes;
}

/// For Checks::memory: the unit, and the owners of its aliases, that are in `scopes` backward
/// scopes.
template <class Visit>
void TrainingPass::for_gradients(std::size_t index, int open_scopes, const Visit& visit) {
  if (setup_.checks == nullptr) { return; }
  for (const std::size_t u : owners_and(index)) {
    if (unit(u).open_backward_scopes() == open_scopes) { visit(u); }
  }
}

std::string TrainingPass::slot_owners(std::size_t index) const {
  std::string names;
  for (const LiveUnit& other : units()) {
    const GradientHome& gradients = other.gradients();
    if (!gradients.in_slot() || !unit(index).gradients().shares_slots_with(gradients)) { continue; }
    names += (names.empty() ? "'" : ", '") + other.name() + "'";
  }
  return names;
}

std::string TrainingPass::more_gradient_slots(int micro_batch) const {
  if (setup_.order_is_declared) {
    return "follow the order given to declare_order, for which slots were made";
  }
  const int now = setup_.options.tuning.gradient_slots;
  const auto counts = [this](std::size_t u) {
    return !unit(u).plan().is_root() && unit(u).plan().trainable();
  };
  const int needed = order().most_pending_now(counts, micro_batch - first_of_round_);
  return fmt::format(
      "tell declare_order how often each unit is used, so that there are slots for all pending "
      "gradients, or raise `tuning.gradient_slots` from {} to {}, which this pass needs if its "
      "backward scopes mirror its forward scopes",
      now, std::max(needed, now + 1));
}

void TrainingPass::check_gradients_can_open(std::size_t index, int micro_batch) const {
  for (const std::size_t u : owners_and(index)) {
    const LiveUnit& opened = unit(u);
    if (!opened.gradients().can_open()) {
      throw ContractError{
          fmt::format("unit '{}' has no place for its gradients: units whose backward scopes are "
                      "not all closed hold the slots ({}); close them first, or {}",
                      opened.name(), slot_owners(u), more_gradient_slots(micro_batch))};
    }
    const UnitPlan& plan = opened.plan();
    const bool overwrites = plan.options.gradients == GradientInit::unzeroed && plan.trainable();
    if (overwrites && opened.uses(micro_batch).backward > 0) {
      throw ContractError{
          fmt::format("unit '{}' has unzeroed gradients and a second backward scope, which would "
                      "overwrite the first; use zeroed gradients",
                      opened.name())};
    }
  }
}

// --------------------------------------------------------------------------------- micro-batches

TrainingPass::MicroBatch* TrainingPass::find(int index) noexcept {
  const auto found = std::ranges::find(in_flight_, index, &MicroBatch::index);
  return found == in_flight_.end() ? nullptr : &*found;
}

void TrainingPass::require_one_at_most() const {
  if (in_flight_.size() < 2) { return; }
  throw ContractError{
      fmt::format("{} micro-batches are in flight, {} to {} of the step: name the scope's "
                  "micro-batch, as in forward(unit, micro_batch) and backward(unit, micro_batch)",
                  in_flight_.size(), in_flight_.front().index, in_flight_.back().index)};
}

bool TrainingPass::has_gradients(std::size_t index) const {
  return std::ranges::any_of(owners_and(index),
                             [this](std::size_t one) { return unit(one).plan().trains_now(); });
}

void TrainingPass::require_none_later(UseKind kind, std::size_t index, int micro_batch) const {
  for (const std::size_t u : owners_and(index)) {
    const int later = unit(u).later_on_its_way_back(micro_batch);
    if (later <= micro_batch) { continue; }
    throw ContractError{
        fmt::format("{} of unit '{}' in micro-batch {}: micro-batch {} already has gradients of "
                    "it; open backward scopes in micro-batch order, in which gradients are added "
                    "so that their bits do not depend on how many are in flight",
                    to_string(kind), unit(u).name(), micro_batch, later)};
  }
}

TrainingPass::MicroBatch& TrainingPass::forward_of(std::optional<int> given) {
  if (!given) {
    require_one_at_most();
    if (!in_flight_.empty() && in_flight_.front().stage == Stage::backward) { finish(); }
    if (in_flight_.empty()) { begin(); }
    return in_flight_.front();
  }
  if (*given == begun_) {
    end_those_that_are_back();
    begin();
    return in_flight_.back();
  }
  MicroBatch* const found = find(*given);
  if (found != nullptr && found->stage == Stage::forward) { return *found; }
  const bool later = *given > begun_;
  throw ContractError{fmt::format(
      "forward of micro-batch {}: {}", *given,
      found != nullptr ? "its backward pass has begun; open all of its forward scopes before that"
      : later          ? fmt::format("micro-batches begin in order, and the next is {}", begun_)
                       : std::string{"it has ended"})};
}

TrainingPass::MicroBatch& TrainingPass::backward_of(std::size_t index, std::optional<int> given) {
  if (!given) { require_one_at_most(); }
  const int mine = given ? *given : in_flight_.empty() ? begun_ : in_flight_.front().index;
  const LiveUnit::Uses of = unit(index).uses(mine);
  if (of.backward >= of.forward) {
    throw ContractError{
        fmt::format("backward of unit '{}' is opened {} times in micro-batch {}, its forward {} "
                    "times; open backward once for each forward",
                    unit(index).name(), of.backward + 1, mine, of.forward)};
  }
  for (const std::size_t u : owners_and(index)) {
    if (setup_.options.checks == Checks::off) { unit(u).give_up_before(mine); }
    const int earlier = unit(u).earlier_on_its_way_back(mine);
    if (earlier >= mine) { continue; }
    throw ContractError{
        fmt::format("backward of unit '{}' in micro-batch {}: that of micro-batch {} comes first "
                    "and has not ended; gradients are added in micro-batch order, so that their "
                    "bits do not depend on how many are in flight",
                    unit(u).name(), mine, earlier)};
  }
  return *find(mine);
}

void TrainingPass::begin() {
  require_no_graph(world(), setup_.options);
  if (begun_ >= setup_.options.accumulate) {
    throw ContractError{
        fmt::format("a forward pass begins after {} micro-batches of this step; call step first, "
                    "or raise accumulate",
                    begun_)};
  }
  if (in_flight_.empty()) {
    order().begin_round();
    first_of_round_ = begun_;
  }
  if (begun_ == 0) {
    units().gradients().bucket().begin_step();
    for (LiveUnit& one : units()) { one.begin_step(); }
    if (search_ != nullptr) { search_->begin_step(); }
  }
  if (in_flight_.empty()) { units().copy_from_rank0(setup_.update_order); }
  in_flight_.push_back({.index = begun_});
  ++begun_;
}

bool TrainingPass::is_back(const MicroBatch& micro_batch) const {
  return micro_batch.stage == Stage::backward && micro_batch.open_scopes == 0 &&
         std::ranges::all_of(std::views::iota(std::size_t{0}, units().size()), [&](std::size_t u) {
           return unit(u).is_back(micro_batch.index) || !has_gradients(u);
         });
}

void TrainingPass::end_those_that_are_back() {
  while (!in_flight_.empty() && is_back(in_flight_.front())) { end_first(); }
}

void TrainingPass::finish() {
  if (in_flight_.empty()) { return; }
  require_scopes_ended("the end of a micro-batch");
  while (!in_flight_.empty()) { end_first(); }
}

void TrainingPass::end_first() {
  const int ending = in_flight_.front().index;
  const bool ends_round = in_flight_.size() == 1;
  const bool last = is_last(ending);
  check_backward(ending);
  if (setup_.checks != nullptr) { setup_.checks->end_micro_batch(last); }
  if (ends_round) { release_parameters(); }
  // Missing gradients become zero, alike on every rank. Units with an incomplete backward pass come
  // first: they hold the slots that unused units need.
  for (std::size_t u = units().size(); u-- > 0;) { unit(u).complete_open_gradients(ending, last); }
  for (std::size_t u = units().size(); last && u-- > 0;) { unit(u).reduce_if_missing(); }
  if (last) { units().gradients().bucket().flush(); }
  for (LiveUnit& one : units()) { one.forget_uses(ending); }
  in_flight_.erase(in_flight_.begin());
  if (ends_round) { order().end_round(); }
}

// ---------------------------------------------------------------------------------------- checks

std::vector<std::string> TrainingPass::without_backward() const {
  std::vector<std::string> names;
  for (const std::size_t u : without_backward_) { names.push_back(unit(u).name()); }
  return names;
}

void TrainingPass::check_backward(int micro_batch) {
  for (std::size_t u = 0; u < units().size(); ++u) {
    const LiveUnit::Uses of = unit(u).uses(micro_batch);
    if (of.backward >= of.forward || !has_gradients(u)) { continue; }
    if (setup_.options.checks == Checks::off) {
      without_backward_.insert(u);
      continue;
    }
    throw ContractError{fmt::format(
        "step {}, micro-batch {} of {}: unit '{}' had {} forward scopes and {} backward scopes. "
        "Its missing gradients would count as zeros: open backward for each forward, evaluate with "
        "evaluate(), or set `checks` to off if that is intended",
        journal().step() + 1, micro_batch + 1, setup_.options.accumulate, unit(u).name(),
        of.forward, of.backward)};
  }
}

void TrainingPass::watch(std::size_t index, int micro_batch, ConstView output) {
  if (setup_.checks != nullptr) { setup_.checks->inspect_output(index, output); }
  if (search_ == nullptr || !search_->searching()) { return; }
  search_->look({Suspect::What::output, index, micro_batch}, output);
}

// Parameters come first: bad parameters make every later value bad.
void TrainingPass::search_parameters(std::size_t index, int micro_batch) {
  if (search_ == nullptr || !search_->searching()) { return; }
  for (const std::size_t u : owners_and(index)) {
    for (std::size_t s = 0; s < unit(u).plan().segments(); ++s) {
      search_->look({Suspect::What::parameters, u, micro_batch}, unit(u).parameters().whole(s));
    }
  }
}

// Inspected as they are on this rank, before the reduction.
void TrainingPass::search_gradients(std::size_t index, int micro_batch) {
  if (search_ == nullptr || !search_->searching()) { return; }
  for (const std::size_t u : owners_and(index)) {
    if (!unit(u).gradients().is_open()) { continue; }
    unit(u).gradients().zero_unwritten();
    for (std::size_t s = 0; s < unit(u).plan().segments(); ++s) {
      search_->look({Suspect::What::gradients, index, micro_batch}, unit(u).gradients().whole(s));
    }
  }
}

}  // namespace tessera::engine
