#include "engine/plan/use_order.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tessera::engine {

void UseOrder::declare(std::span<const std::size_t> forward) {
  known_.clear();
  for (const std::size_t unit : forward) { known_.push_back({UseKind::forward, unit}); }
  for (std::size_t i = forward.size(); i > 0; --i) {
    known_.push_back({UseKind::backward, forward[i - 1]});
  }
  changed_ = true;  // a declared order is also compared across ranks
}

void UseOrder::begin_round() {
  current_.clear();
  on_track_ = !known_.empty();
}

void UseOrder::note(Use use) {
  const std::size_t at = current_.size();
  on_track_ = on_track_ && at < known_.size() && known_[at] == use;
  current_.push_back(use);
}

void UseOrder::end_round() {
  on_track_ = false;
  if (current_.empty()) { return; }
  if (current_ != known_) {
    std::swap(known_, current_);
    changed_ = true;
  }
  current_.clear();
}

std::span<const Use> UseOrder::upcoming() const noexcept {
  if (!on_track_) { return {}; }
  return std::span{known_}.subspan(current_.size());
}

bool UseOrder::take_changed() noexcept {
  return std::exchange(changed_, false);
}

int UseOrder::most_pending(const std::function<bool(std::size_t)>& counts) const {
  std::unordered_map<std::size_t, int> left;  // backward uses, by unit
  for (const Use& use : known_) { left[use.unit] += use.kind == UseKind::backward ? 1 : 0; }
  std::unordered_set<std::size_t> pending;
  std::size_t most = 0;
  for (const Use& use : known_) {
    if (use.kind != UseKind::backward || !counts(use.unit)) { continue; }
    pending.insert(use.unit);
    most = std::max(most, pending.size());
    if (--left[use.unit] == 0) { pending.erase(use.unit); }
  }
  return static_cast<int>(most);
}

int UseOrder::most_pending_now(const std::function<bool(std::size_t)>& counts,
                               int micro_batch) const {
  std::vector<std::size_t> forward;
  for (const Use& use : current_) {
    if (use.kind == UseKind::forward && use.micro_batch == micro_batch) {
      forward.push_back(use.unit);
    }
  }
  UseOrder mirrored;
  mirrored.declare(forward);
  return mirrored.most_pending(counts);
}

std::vector<std::size_t> UseOrder::units() const {
  std::vector<std::size_t> units;
  std::unordered_set<std::size_t> seen;
  for (const Use& use : known_) {
    if (seen.insert(use.unit).second) { units.push_back(use.unit); }
  }
  return units;
}

UseOrder UseOrder::evaluation() const {
  UseOrder order;
  for (const Use& use : known_) {
    if (use.kind == UseKind::forward && use.micro_batch == 0) {
      order.known_.push_back({UseKind::evaluation, use.unit});
    }
  }
  return order;
}

std::string UseOrder::describe(const std::function<std::string(std::size_t)>& name) const {
  std::string text;
  for (const Use& use : known_) {
    text += to_string(use.kind);
    text += ' ';
    text += name(use.unit);
    if (use.micro_batch > 0) { text += " of micro-batch " + std::to_string(use.micro_batch); }
    text += '\n';
  }
  return text;
}

}  // namespace tessera::engine
