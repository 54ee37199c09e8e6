#include "engine/model/pass.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"

namespace tessera::engine {

std::string names_of_open_units(const LiveUnits& units) {
  std::string held;
  for (const LiveUnit& unit : units) {
    if (unit.open_scopes() == 0) { continue; }
    const bool has_gradients = unit.trains() && unit.gradients().is_open();
    held += fmt::format("{}'{}' ({}{}{})", held.empty() ? "" : ", ", unit.name(),
                        to_string(unit.parameters().category()), has_gradients ? ", " : "",
                        has_gradients ? to_string(unit.gradients().category()) : "");
  }
  return held;
}

void Pass::require_scopes_ended(const char* what) const {
  if (open_scopes_ == 0) { return; }
  throw ContractError{
      fmt::format("{}: a scope is still open and holds the memory of unit {}; end it first", what,
                  names_of_open_units(place_.units))};
}

void Pass::require_closed(std::size_t index) const {
  if (unit(index).open_scopes() == 0) { return; }
  throw ContractError{
      fmt::format("unit '{}' is already open; close its scope first", unit(index).name())};
}

void Pass::make_room(std::size_t index) {
  const ParameterHome& wanted = unit(index).parameters();
  if (wanted.held() || wanted.can_gather()) { return; }
  std::string holders;
  for (LiveUnit& other : units()) {
    if (!other.parameters().held() || !wanted.shares_slots_with(other.parameters())) { continue; }
    if (other.open_scopes() == 0) {
      other.release_parameters();
    } else {
      holders += fmt::format(" '{}'", other.name());
    }
  }
  if (wanted.can_gather()) { return; }
  // The deeper of the two determines the number of slots.
  const bool by_backward = place_.prefetch.backward > place_.prefetch.forward;
  throw ContractError{
      fmt::format("unit '{}' cannot be gathered: units in open scopes hold every slot that "
                  "it can use ({}); close a scope, or raise {} (now {})",
                  unit(index).name(), holders.substr(holders.empty() ? 0 : 1),
                  by_backward ? "tuning.prefetch_backward" : "prefetch",
                  by_backward ? place_.prefetch.backward : place_.prefetch.forward)};
}

void Pass::bring(const Use& use, trace::Phase phase) {
  journal().enter(phase, unit(use.unit).name());
  order_.note(use);
  for (const std::size_t u : owners_and(use.unit)) { unit(u).bring(); }
  gather_ahead();
}

int Pass::depth(UseKind kind) const noexcept {
  const bool back = kind == UseKind::backward || kind == UseKind::read;
  return back ? place_.prefetch.backward : place_.prefetch.forward;
}

void Pass::gather_ahead() {
  if (!gathers_) { return; }
  int ahead = 0;
  for (const Use& use : order_.upcoming()) {
    if (ahead >= depth(use.kind)) { return; }
    for (const std::size_t u : owners_and(use.unit)) {
      LiveUnit& next = unit(u);
      if (!next.plan().is_gathered()) { continue; }
      // It is released first, then gathered again.
      if (!next.plan().has_own_slot() && next.open_scopes() > 0) { return; }
      if (!next.gather_ahead()) { return; }
      // A unit that stays from an earlier use was not gathered ahead of this one.
      const bool counts = !next.plan().has_own_slot() || next.gathered_ahead();
      ahead += counts && !next.plan().is_root() ? 1 : 0;
    }
  }
}

void Pass::enter(const Use& use, int micro_batch) {
  for (const std::size_t u : owners_and(use.unit)) { unit(u).open(use.kind, micro_batch); }
  ++open_scopes_;
}

void Pass::begin_span(const Use& use) {
  journal().issue(to_string(use.kind), unit(use.unit).name());
  spans_[use.unit] = journal().begin_span();
}

void Pass::end_span(const Use& use) {
  journal().end_span(to_string(use.kind), unit(use.unit).name(), spans_[use.unit]);
}

void Pass::leave(const Use& use, int micro_batch, bool last) {
  --open_scopes_;
  ++place_.lives[use.unit].ended_scopes;
  for (const std::size_t u : owners_and(use.unit)) { unit(u).close(use.kind, micro_batch, last); }
}

void Pass::release_parameters() {
  for (std::size_t u = units().size(); u-- > 0;) { unit(u).release_parameters(); }
}

}  // namespace tessera::engine
