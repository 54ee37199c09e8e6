#include "pipeline/wiring.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera::pipeline {
namespace {

std::size_t at(int number) {
  return static_cast<std::size_t>(number);
}

/// Finds the items that actions make.
class Items {
 public:
  Items(const Schedule& schedule, std::vector<Link>& links)
      : schedule_{schedule}, links_{links}, outputs_(all()), gradients_(all()) {}

  /// Adds the item of `action` to its link, and the link if it is new.
  void add(const Action& action) {
    if (action.work == Work::backward_weight) { return; }
    const bool forward = action.work == Work::forward;
    const int to = forward ? action.stage + 1 : action.stage - 1;
    if (to < 0 || to >= schedule_.stages()) { return; }
    const int link =
        link_of(forward ? Work::forward : Work::backward, rank_of(action.stage), rank_of(to));
    std::vector<Action>& items = links_[at(link)].items;
    item(forward ? outputs_ : gradients_, action.stage, action.micro_batch) = {
        link, narrow<int>(items.size())};
    items.push_back(action);
  }

  [[nodiscard]] Item output(int stage, int micro_batch) {
    return item(outputs_, stage, micro_batch);
  }
  [[nodiscard]] Item gradient(int stage, int micro_batch) {
    return item(gradients_, stage, micro_batch);
  }

 private:
  [[nodiscard]] std::size_t all() const {
    return at(schedule_.stages() + 2) * at(schedule_.micro_batches);
  }
  /// Stages before the first and after the last make nothing.
  [[nodiscard]] Item& item(std::vector<Item>& of, int stage, int micro_batch) const {
    return of[at(stage + 1) * at(schedule_.micro_batches) + at(micro_batch)];
  }
  [[nodiscard]] int rank_of(int stage) const { return schedule_.rank_of_stage[at(stage)]; }

  int link_of(Work way, int from, int to) {
    const auto [found, added] = numbers_.try_emplace({way, from, to}, narrow<int>(links_.size()));
    if (added) { links_.push_back({.way = way, .from = from, .to = to, .items = {}}); }
    return found->second;
  }

  const Schedule& schedule_;
  std::vector<Link>& links_;
  std::map<std::tuple<Work, int, int>, int> numbers_;
  std::vector<Item> outputs_;  // by stage and micro-batch, with a row before and a row after
  std::vector<Item> gradients_;
};

Step step_of(const Action& action, Items& items) {
  const auto [work, stage, m] = action;
  Step step;
  step.action = action;
  step.input = items.output(stage - 1, m);
  if (work == Work::forward) { step.output = items.output(stage, m); }
  if (work == Work::backward || work == Work::backward_input) {
    step.output_gradient = items.gradient(stage + 1, m);
    step.input_gradient = items.gradient(stage, m);
  }
  return step;
}

/// Gives every pair of a stage and a micro-batch the lowest slot that is free when it begins: then
/// as many slots are needed as pairs are in flight at once.
void give_slots(std::vector<Step>& steps) {
  std::vector<bool> taken;
  std::map<std::pair<int, int>, int> slots;
  for (Step& step : steps) {
    const std::pair pair{step.action.stage, step.action.micro_batch};
    if (step.action.work == Work::forward) {
      const auto free = std::ranges::find(taken, false);
      const auto slot = free - taken.begin();
      if (free == taken.end()) { taken.push_back(false); }
      slots[pair] = narrow<int>(slot);
      taken[static_cast<std::size_t>(slot)] = true;
    }
    step.slot = slots.at(pair);
    if (step.ends()) { taken[at(step.slot)] = false; }
  }
}

/// Counts the arriving items that `rank` holds, as Pipeline::run takes and releases them.
void count_held(Wiring& wiring, int rank) {
  Asked asked{wiring.links.size()};
  std::vector<int> had(wiring.links.size());
  std::vector<int> given_back(wiring.links.size());
  std::vector<std::size_t> coming;
  for (std::size_t l = 0; l < wiring.links.size(); ++l) {
    if (wiring.links[l].to == rank) { coming.push_back(l); }
  }
  const auto give_back = [&](Item item) {
    if (item) { ++given_back[at(item.link)]; }
  };
  for (const Step& step : wiring.ranks[at(rank)]) {
    asked.come_to(step);
    for (const std::size_t l : coming) {
      Link& link = wiring.links[l];
      const bool makes = step.gives() && at(step.gives().link) == l;
      had[l] = link.local() ? had[l] + (makes ? 1 : 0) : asked.of(narrow<int>(l), link);
      link.to_buffers = std::max(link.to_buffers, had[l] - given_back[l]);
    }
    give_back(step.output_gradient);
    if (step.ends()) { give_back(step.input); }
  }
}

/// Plays a schedule in which an item leaves its sender's buffer once the receiver has asked for it,
/// and records in order which rank acts and which item moves.
class BufferedPlay {
 public:
  explicit BufferedPlay(Wiring& wiring)
      : wiring_{wiring},
        made_(wiring.links.size()),
        moved_(wiring.links.size()),
        steps_(wiring.ranks.size()) {
    wiring.in_concert.resize(wiring.ranks.size());
    for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
      asked_.emplace_back(wiring.links.size());
      come(rank);
    }
  }

  /// Adds a buffer whenever the schedule is stuck for lack of one, until it ends.
  void run() {
    for (;;) {
      bool went_on = false;
      bool ended = true;
      std::optional<int> lacks;
      for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
        for (; next(rank) != nullptr && arrived(next(rank)->takes()); went_on = true) {
          if (const Item item = next(rank)->gives(); is_full(item)) {
            lacks = lacks.value_or(item.link);
            break;
          }
          make(rank);
        }
        ended = ended && next(rank) == nullptr;
      }
      if (ended) { return; }
      if (went_on) { continue; }
      // Take any order of actions that ends. The first action in it that was not made has
      // everything it needs: its rank has reached it and has asked for its items.
      TESSERA_ASSERT(lacks);
      ++wiring_.links[at(*lacks)].from_buffers;
    }
  }

 private:
  [[nodiscard]] const Step* next(std::size_t rank) const {
    const std::vector<Step>& steps = wiring_.ranks[rank];
    return steps_[rank] < steps.size() ? &steps[steps_[rank]] : nullptr;
  }
  void come(std::size_t rank) {
    const Step* const step = next(rank);
    if (step == nullptr) { return; }
    asked_[rank].come_to(*step);
    move(step->takes());
  }
  void make(std::size_t rank) {
    const Item item = next(rank)->gives();
    wiring_.in_concert[rank].push_back({Move::Kind::make, narrow<int>(steps_[rank])});
    if (item) { ++made_[at(item.link)]; }
    ++steps_[rank];
    move(item);
    come(rank);
  }
  /// Moves the items that were made and asked for on the link of `item`.
  void move(Item item) {
    if (!item) { return; }
    const Link& link = wiring_.links[at(item.link)];
    int& moved = moved_[at(item.link)];
    const int made = made_[at(item.link)];
    if (link.local()) {
      moved = made;
      return;
    }
    for (; moved < std::min(made, asked_[at(link.to)].of(item.link, link)); ++moved) {
      wiring_.in_concert[at(link.from)].push_back({Move::Kind::send, item.link});
      wiring_.in_concert[at(link.to)].push_back({Move::Kind::ask, item.link});
    }
  }
  [[nodiscard]] bool arrived(Item item) const {
    return !item || item.number < moved_[at(item.link)];
  }
  /// Whether the link of `item` has no buffer for it.
  [[nodiscard]] bool is_full(Item item) const {
    if (!item) { return false; }
    const Link& link = wiring_.links[at(item.link)];
    return !link.local() && item.number - moved_[at(item.link)] >= link.from_buffers;
  }

  Wiring& wiring_;
  std::vector<int> made_;  // by link
  std::vector<int> moved_;
  std::vector<std::size_t> steps_;  // by rank: the number of steps made
  std::vector<Asked> asked_;        // by rank
};

}  // namespace

void Asked::come_to(const Step& step) {
  const Item item = step.takes();
  if (!item) { return; }
  int& needed = needed_[at(item.link)];
  needed = std::max(needed, item.number + 1);
}

int Asked::of(int number, const Link& link) const {
  return std::min(needed_[at(number)] + 1, narrow<int>(link.items.size()));
}

int Wiring::buffers(int rank) const {
  int sum = 0;
  for (const Link& link : links) {
    sum += (link.from == rank ? link.from_buffers : 0) + (link.to == rank ? link.to_buffers : 0);
  }
  return sum;
}

Wiring wire(const Schedule& schedule) {
  Wiring wiring;
  Items items{schedule, wiring.links};
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) { items.add(action); }
  }
  for (const auto& actions : schedule.ranks) {
    std::vector<Step>& steps = wiring.ranks.emplace_back();
    steps.reserve(actions.size());
    for (const Action& action : actions) { steps.push_back(step_of(action, items)); }
    give_slots(steps);
  }
  for (int rank = 0; rank < narrow<int>(schedule.ranks.size()); ++rank) {
    count_held(wiring, rank);
  }
  for (Link& link : wiring.links) {  // one is written while another leaves
    if (!link.local()) { link.from_buffers = std::min(2, narrow<int>(link.items.size())); }
  }
  BufferedPlay{wiring}.run();
  return wiring;
}

std::vector<Move> moves_at_once(const Wiring& wiring, int rank) {
  const std::vector<Step>& steps = wiring.ranks[at(rank)];
  std::vector<int> coming;
  for (int l = 0; l < narrow<int>(wiring.links.size()); ++l) {
    const Link& link = wiring.links[at(l)];
    if (link.to == rank && !link.local()) { coming.push_back(l); }
  }
  std::vector<Move> moves;
  std::vector<int> have(wiring.links.size());
  Asked asked{wiring.links.size()};
  for (int s = 0; s < narrow<int>(steps.size()); ++s) {
    const Step& step = steps[at(s)];
    asked.come_to(step);
    for (const int l : coming) {
      for (; have[at(l)] < asked.of(l, wiring.links[at(l)]); ++have[at(l)]) {
        moves.push_back({Move::Kind::ask, l});
      }
    }
    moves.push_back({Move::Kind::make, s});
    const Item item = step.gives();
    if (item && !wiring.links[at(item.link)].local()) {
      moves.push_back({Move::Kind::send, item.link});
    }
  }
  return moves;
}

std::vector<int> classes_of(const std::vector<Link>& links) {
  std::map<std::pair<int, int>, int> classes;  // by the ends of a forward link
  std::map<int, std::vector<bool>> taken;      // by rank: classes in use
  const auto has = [&](int rank, std::size_t number) {
    const std::vector<bool>& of = taken[rank];
    return number < of.size() && of[number];
  };
  const auto take = [&](int rank, std::size_t number) {
    std::vector<bool>& of = taken[rank];
    of.resize(std::max(of.size(), number + 1));
    of[number] = true;
  };
  std::vector<int> all;
  for (const Link& link : links) {
    const bool forward = link.way == Work::forward;
    const std::pair ends = forward ? std::pair{link.from, link.to} : std::pair{link.to, link.from};
    if (!link.local() && !classes.contains(ends)) {
      std::size_t number = 0;
      while (has(link.from, number) || has(link.to, number)) { ++number; }
      take(link.from, number);
      take(link.to, number);
      classes[ends] = narrow<int>(number);
    }
    all.push_back(link.local() ? -1 : classes.at(ends));
  }
  return all;
}

}  // namespace tessera::pipeline
