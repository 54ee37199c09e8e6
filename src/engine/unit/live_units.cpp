#include "engine/unit/live_units.hpp"

#include <utility>

namespace tessera::engine {

LiveUnits::LiveUnits(World& world, const UnitPlans& plans, Journal& journal,
                     const ModelOptions& options, const Sharding& group, const UseOrder& order)
    : plans_{plans}, parameters_{world, plans, journal, options, group} {
  if (options.purpose == Purpose::training) {
    gradients_ = std::make_unique<GradientPool>(world, plans, journal, options, group, order);
    updates_ = std::make_unique<UpdatePool>(world, plans, journal, options.master_weights);
  }
  for (std::size_t u = 0; u < plans.size(); ++u) {
    auto parameters = parameters_.make_home(u);
    auto gradients = gradients_ ? gradients_->make_home(u) : nullptr;
    auto update = updates_ ? updates_->make_home(u, *parameters, *gradients) : nullptr;
    units_.emplace_back(plans[u], world.compute_stream(), std::move(parameters),
                        std::move(gradients), gradients_ ? &gradients_->bucket() : nullptr,
                        std::move(update));
  }
}

// The copies' last readers and rank 0's update came earlier on the compute stream.
void LiveUnits::copy_from_rank0(const std::vector<std::size_t>& order) {
  if (!parameters_.are_on_rank0()) { return; }
  parameters_.lane().order_after_compute();
  for (const std::size_t u : order) { units_[u].parameters().copy_from_rank0(); }
}

}  // namespace tessera::engine
