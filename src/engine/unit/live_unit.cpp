#include "engine/unit/live_unit.hpp"

#include <algorithm>
#include <utility>

namespace tessera::engine {

LiveUnit::LiveUnit(const UnitPlan& plan, Stream compute, std::unique_ptr<ParameterHome> parameters,
                   std::unique_ptr<GradientHome> gradients, ReduceBucket* bucket,
                   std::unique_ptr<UpdateHome> update)
    : plan_{plan},
      compute_{compute},
      parameters_{std::move(parameters)},
      gradients_{std::move(gradients)},
      bucket_{bucket},
      update_{std::move(update)} {}

void LiveUnit::bring() {
  if (!parameters_->held()) { parameters_->gather(); }
  gathered_ahead_ = false;
}

bool LiveUnit::gather_ahead() {
  if (parameters_->held()) { return true; }
  if (!parameters_->can_gather()) { return false; }
  parameters_->gather();
  gathered_ahead_ = true;
  return true;
}

void LiveUnit::release_parameters() {
  if (!parameters_->held()) { return; }
  parameters_->await();
  parameters_->release(compute_);
}

void LiveUnit::open(UseKind kind, int micro_batch) {
  parameters_->await();
  ++open_scopes_;
  if (kind == UseKind::evaluation || kind == UseKind::read) { return; }
  count(kind, micro_batch);
  if (kind == UseKind::forward) { return; }
  ++open_backward_scopes_;
  gradients_of_ = micro_batch;
  if (!gradients_->is_open()) { open_gradients(); }
}

void LiveUnit::open_gradients() {
  if (gradients_->reduced()) { bucket_->flush(); }  // what waits there is where they were
  await_update();
  gradients_->open();
}

// The previous step's update on the device may still read the gradients, if the unit's parameters
// were not used since, or only by another stream.
void LiveUnit::await_update() {
  if (plan_.offload == Offload::state) { parameters_->await_arrival(compute_); }
}

void LiveUnit::close(UseKind kind, int micro_batch, bool last) {
  --open_scopes_;
  leave_parameters(kind);
  if (kind != UseKind::backward) { return; }
  --open_backward_scopes_;
  // The unit may still be in another scope: its own, or that of a unit with its aliases.
  const Uses of = uses(micro_batch);
  if (of.backward == of.forward && open_backward_scopes_ == 0) { complete_gradients(last); }
}

void LiveUnit::complete_gradients(bool last_micro_batch) {
  if (gradients_->complete(last_micro_batch)) { bucket_->add(*gradients_); }
}

void LiveUnit::leave_parameters(UseKind kind) {
  const bool last_use = kind == UseKind::backward && !awaits_backward();
  if (plan_.has_own_slot() && !last_use) { return; }
  if (open_scopes_ == 0) { parameters_->release(compute_); }
}

bool LiveUnit::awaits_backward() const noexcept {
  return std::ranges::any_of(uses_, [](const Uses& of) { return of.backward < of.forward; });
}

void LiveUnit::count(UseKind kind, int micro_batch) {
  auto of = std::ranges::find(uses_, micro_batch, &Uses::micro_batch);
  if (of == uses_.end()) { of = uses_.insert(of, {.micro_batch = micro_batch}); }
  ++(kind == UseKind::forward ? of->forward : of->backward);
}

LiveUnit::Uses LiveUnit::uses(int micro_batch) const noexcept {
  const auto of = std::ranges::find(uses_, micro_batch, &Uses::micro_batch);
  return of == uses_.end() ? Uses{.micro_batch = micro_batch} : *of;
}

// Units without gradients have no order to keep.
int LiveUnit::earlier_on_its_way_back(int micro_batch) const noexcept {
  int earliest = micro_batch;
  if (!plan_.trainable()) { return earliest; }
  for (const Uses& of : uses_) {
    if (of.backward < of.forward) { earliest = std::min(earliest, of.micro_batch); }
  }
  const bool open = gradients_ != nullptr && gradients_->is_open();
  return open ? std::min(earliest, gradients_of_) : earliest;
}

int LiveUnit::later_on_its_way_back(int micro_batch) const noexcept {
  int latest = micro_batch;
  for (const Uses& of : uses_) {
    if (of.backward > 0) { latest = std::max(latest, of.micro_batch); }
  }
  return plan_.trainable() ? latest : micro_batch;
}

void LiveUnit::give_up_before(int micro_batch) {
  if (open_backward_scopes_ > 0) { return; }  // this scope will be rejected
  for (Uses& of : uses_) {
    if (of.micro_batch >= micro_batch) { continue; }
    complete_open_gradients(of.micro_batch, /*last=*/false);
    of.backward = of.forward;
  }
}

void LiveUnit::begin_step() {
  gradients_->begin_step();
}

void LiveUnit::complete_open_gradients(int micro_batch, bool last) {
  if (gradients_->is_open() && gradients_of_ == micro_batch) { complete_gradients(last); }
}

void LiveUnit::forget_uses(int micro_batch) {
  std::erase_if(uses_, [=](const Uses& of) { return of.micro_batch == micro_batch; });
}

void LiveUnit::conclude_gradients() {
  if (!gradients_->conclude()) { reduce_if_missing(); }
}

void LiveUnit::reduce_if_missing() {
  if (gradients_->reduced()) { return; }
  await_update();
  gradients_->open_as_zero();
  complete_gradients(/*last_micro_batch=*/true);
}

}  // namespace tessera::engine
