#include "engine/model/gradient_sums.hpp"

#include <algorithm>
#include <utility>

namespace tessera::engine {

GradientSums::GradientSums(World& world, LiveUnits& units, const Sharding& group)
    : world_{world}, units_{units}, mark_{world.device().make_event()} {
  if (group.tensor().size > 1) {
    plan("add parts along tensor", group.along_tensor(), [](const UnitPlan& unit, std::size_t s) {
      return unit.layout.segments()[s].tensor() == TensorKind::parts;
    });
  }
  // All ranks make the channels, in unit order.
  std::vector<std::vector<int>> shared;
  for (const UnitPlan& unit : units.plans()) {
    const bool known = std::ranges::find(shared, unit.places) != shared.end();
    if (unit.places.size() > 1 && !known) { shared.push_back(unit.places); }
  }
  for (const std::vector<int>& places : shared) {
    plan("add ties along pipe", group.along_pipe(places),
         [&](const UnitPlan& unit, std::size_t /*segment*/) { return unit.places == places; });
  }
}

template <class Includes>
void GradientSums::plan(const char* label, const Channel& channel, const Includes& includes) {
  Sum sum{label, channel, {}};
  for (const LiveUnit& unit : units_) {
    for (std::size_t s = 0; s < unit.plan().segments(); ++s) {
      const View gradient = unit.gradients().resident(s);
      if (gradient.elems > 0 && includes(unit.plan(), s)) { sum.gradients.push_back(gradient); }
    }
  }
  if (!sum.gradients.empty()) { sums_.push_back(std::move(sum)); }
}

void GradientSums::add() {
  if (sums_.empty() || std::exchange(added_, true)) { return; }
  units_.gradients().settle();
  for (const Sum& sum : sums_) {
    Batch batch{sum.label};
    for (const View gradient : sum.gradients) { batch.all_reduce(gradient); }
    submit_in_order(world_.compute_stream(), sum.channel, std::move(batch), mark_.get());
  }
}

}  // namespace tessera::engine
