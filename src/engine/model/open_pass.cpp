#include "engine/model/open_pass.hpp"

#include <fmt/format.h>

#include "engine/model/training_pass.hpp"
#include "tessera/base/error.hpp"

namespace tessera::engine {

void OpenPass::begin() {
  if (!in_round_) {
    order().begin_round();
    in_round_ = true;
  }
  if (begun_) { return; }
  require_no_graph(world(), options_);
  units().gradients().bucket().begin_step();
  for (LiveUnit& one : units()) { one.begin_step(); }
  if (search_ != nullptr) { search_->begin_step(); }
  units().copy_from_rank0(update_order_);
  begun_ = true;
}

void OpenPass::open(UseKind kind, std::size_t index) {
  const bool back = kind == UseKind::backward;
  require_closed(index);
  if (!back && in_backward_ && open_scopes() == 0) { end_round("forward"); }
  make_room(index);
  begin();
  in_backward_ = in_backward_ || back;
  const Use use{kind, index};
  bring(use, back ? trace::Phase::backward : trace::Phase::forward);
  enter({UseKind::read, index}, /*micro_batch=*/0);
  if (!back && search_ != nullptr && search_->searching()) {
    for (std::size_t s = 0; s < unit(index).plan().segments(); ++s) {
      search_->look({Suspect::What::parameters, index, 0}, unit(index).parameters().whole(s));
    }
  }
  begin_span(use);
}

void OpenPass::open_gradients(std::size_t index) {
  LiveUnit& one = unit(index);
  GradientHome& gradients = one.gradients();
  if (gradients.is_open()) { return; }
  if (gradients.reduced() && one.plan().trainable() && one.plan().updated_on_host()) {
    throw ContractError{fmt::format(
        "unit '{}' gets gradients a second time in one step, for which an offloaded optimizer has "
        "no memory while `accumulate` is 1; set `accumulate` to the number of backward passes of a "
        "step, and multiply the losses by it",
        one.name())};
  }
  // Slots may hold gradients that wait to be reduced together with others.
  if (!gradients.can_open()) { units().gradients().bucket().flush(); }
  if (!gradients.can_open()) {
    throw ContractError{fmt::format(
        "unit '{}' has no slot for its gradients: the units {} are in use together; "
        "{} slots are needed (ModelOptions::tuning.gradient_slots, now {})",
        one.name(), names_of_open_units(units()), open_scopes(), options_.tuning.gradient_slots)};
  }
  one.open_gradients();
}

void OpenPass::close_gradients(std::size_t index) {
  LiveUnit& one = unit(index);
  if (!one.gradients().is_open()) { return; }
  ++sums_;
  if (search_ != nullptr && search_->searching()) {
    one.gradients().zero_unwritten();
    for (std::size_t s = 0; s < one.plan().segments(); ++s) {
      search_->look({Suspect::What::gradients, index, 0}, one.gradients().whole(s));
    }
  }
  one.complete_gradients(/*last_micro_batch=*/options_.accumulate == 1);
}

void OpenPass::close(UseKind kind, std::size_t index) {
  const Use use{kind, index};
  end_span(use);
  close_gradients(index);
  leave({UseKind::read, index}, /*micro_batch=*/0, /*last=*/false);
}

void OpenPass::end_round(const char* call) {
  require_scopes_ended(call);
  release_parameters();
  if (in_round_) { order().end_round(); }
  in_round_ = in_backward_ = false;
}

void OpenPass::finish(const char* call) {
  end_round(call);
  for (std::size_t u = units().size(); u-- > 0;) { unit(u).conclude_gradients(); }
  units().gradients().bucket().flush();
}

std::string OpenPass::describe() const {
  return begun_ ? fmt::format(" of {} unit gradients", sums_) : std::string{};
}

void OpenPass::discard() {
  end_round("discard");
  units().gradients().settle();
  next_step();
}

}  // namespace tessera::engine
