#include "engine/unit/host_gradients.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/table.hpp"

namespace tessera::engine {
namespace {

const std::string kAllUnits = "all units";

std::size_t bytes_of(std::int64_t doubles) {
  return static_cast<std::size_t>(doubles) * sizeof(double);
}

}  // namespace

HostGradients::HostGradients(World& world, const UnitPlan& plan, HostGradientPool& pool)
    : host_{world},
      plan_{plan},
      pool_{pool},
      copied_{world.device().make_event()},
      read_{world.device().make_event()} {
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    views_.push_back(
        {nullptr, plan.owned[s].updates.elems, plan.layout.segments()[s].dtypes().gradient});
  }
}

void HostGradients::keep(Stream producer, const ViewOf& gradients, bool first) {
  producer.record(pool_.produced_.get());
  pool_.copies().wait_for(pool_.produced_.get());
  first ? copy(gradients) : add(gradients);
}

void HostGradients::copy(const ViewOf& gradients) {
  pool_.copies().wait_for(read_.get());
  for (std::size_t s = 0; s < views_.size(); ++s) {
    const View to = views_[s];
    if (to.elems == 0) { continue; }
    host_.copy_out(to.data, gradients(s).data, to.bytes(), plan_.name, world::CopyKind::states);
  }
  pool_.copies().record(copied_.get());
}

// Adds as the device would: the kernels give the same bits.
void HostGradients::add(const ViewOf& gradients) {
  auto& staging = pool_.next_staging();
  const Stream host = host_.compute_stream();
  pool_.copies().wait_for(staging.added.get());
  std::vector<std::pair<View, ConstValues>> sums;
  std::byte* at = staging.data;
  for (std::size_t s = 0; s < views_.size(); ++s) {
    const View to = views_[s];
    if (to.elems == 0) { continue; }
    host_.copy_out(at, gradients(s).data, to.bytes(), plan_.name, world::CopyKind::states);
    sums.emplace_back(to, ConstValues{at, to.dtype});
    at += Arena::need(to.bytes());
  }
  pool_.copies().record(staging.filled.get());
  host.wait_for(copied_.get());
  host.wait_for(staging.filled.get());
  const auto work = [sums = std::move(sums)](Stream cpu) {
    for (const auto& [to, from] : sums) {
      kernels::cpu_table().accumulate(to.values(), from, to.elems, cpu);
    }
  };
  host_.compute(work, "accumulate", plan_.name);
  host.record(staging.added.get());
}

void HostGradients::complete() {
  if (norms_.empty()) { return; }
  host_.compute_stream().wait_for(copied_.get());
  const auto work = [norms = std::span<const HostNorm>{norms_}](Stream cpu) {
    for (const HostNorm& norm : norms) {
      kernels::cpu::span_sums(norm.gradient, norm.elems, norm.spans, cpu);
    }
  };
  host_.compute(work, "norm", plan_.name);
}

void HostGradients::release() {
  host_.compute_stream().record(read_.get());
}

void HostGradients::order_after_host(Stream reader) {
  host_.compute_stream().record(pool_.mark_.get());
  reader.wait_for(pool_.mark_.get());
}

// ------------------------------------------------------------------------------------------ pool

HostGradientPool::HostGradientPool(World& world, const UnitPlans& plans, const Options& options)
    : world_{world},
      host_{world},
      all_shards_{options.all_shards},
      produced_{world.device().make_event()},
      mark_{world.device().make_event()} {
  for (const UnitPlan& plan : plans) {
    units_.push_back(plan.updated_on_host() ? std::make_unique<HostGradients>(world, plan, *this)
                                            : nullptr);
  }
  allocate();
  if (options.norms) { plan_norms(options); }
  if (options.accumulate) { make_staging(); }
}

void HostGradientPool::allocate() {
  std::size_t bytes = 0;
  for (const auto& unit : units_) {
    if (unit == nullptr) { continue; }
    for (const View& view : unit->views_) { bytes += Arena::need(view.bytes()); }
  }
  kept_ = Arena{world_.allocate_host(Category::gradients, bytes, "gradients in the host pool")};
  for (const auto& unit : units_) {
    if (unit == nullptr) { continue; }
    for (View& view : unit->views_) {
      if (view.elems > 0) { view.data = kept_.take(view.bytes()); }
    }
  }
}

// As OptimizerStep plans the norms of what stays on the device.
void HostGradientPool::plan_norms(const Options& options) {
  std::int64_t spans = 0;
  for (const auto& unit : units_) {
    for (std::size_t s = 0; unit != nullptr && s < unit->views_.size(); ++s) {
      const View& view = unit->views_[s];
      if (view.elems == 0 || !unit->plan_.owned[s].normed) { continue; }
      const std::int64_t kept = unit->plan_.owned[s].updates.first;
      for (const int index : options.shards) {
        const Range shard = unit->plan_.layout.segments()[s].shard(index);
        const View part = view.slice(shard.first - kept, shard.elems);
        unit->norms_.push_back({part.values(), part.elems, index, nullptr});
        spans += kernels::squared_norm_spans(part.elems);
      }
    }
  }
  if (spans == 0) { return; }
  sums_arena_ = Arena{world_.allocate_host(
      Category::workspace, Arena::need(bytes_of(all_shards_)) + Arena::need(bytes_of(spans)),
      "norms in the host pool")};
  sums_ = static_cast<double*>(sums_arena_.take(bytes_of(all_shards_)));
  auto* next = static_cast<double*>(sums_arena_.take(bytes_of(spans)));
  for (const auto& unit : units_) {
    if (unit == nullptr) { continue; }
    for (HostNorm& norm : unit->norms_) {
      norm.spans = next;
      next += kernels::squared_norm_spans(norm.elems);
    }
  }
}

void HostGradientPool::make_staging() {
  std::size_t most = 0;
  for (const auto& unit : units_) {
    std::size_t bytes = 0;
    for (std::size_t s = 0; unit != nullptr && s < unit->views_.size(); ++s) {
      bytes += Arena::need(unit->views_[s].bytes());
    }
    most = std::max(most, bytes);
  }
  staging_arena_ = Arena{world_.allocate_host(Category::gradients, staging_.size() * most,
                                              "gradients on their way to the host pool")};
  for (Staging& staging : staging_) {
    staging.data = static_cast<std::byte*>(staging_arena_.take(most));
    staging.filled = world_.device().make_event();
    staging.added = world_.device().make_event();
  }
}

HostGradientPool::Staging& HostGradientPool::next_staging() noexcept {
  Staging& staging = staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  return staging;
}

const double* HostGradientPool::sum_norms(Stream reader) {
  const auto work = [this](Stream) {
    std::fill_n(sums_, all_shards_, 0.0);
    for (const auto& unit : units_) {
      if (unit == nullptr) { continue; }
      for (const HostNorm& norm : unit->norms_) {
        const std::int64_t spans = kernels::squared_norm_spans(norm.elems);
        for (std::int64_t i = 0; i < spans; ++i) { sums_[norm.shard] += norm.spans[i]; }
      }
    }
  };
  host_.compute(work, "norm", kAllUnits);
  host_.compute_stream().record(mark_.get());
  reader.wait_for(mark_.get());
  return sums_;
}

void HostGradientPool::settle(Stream stream) {
  copies().record(mark_.get());
  stream.wait_for(mark_.get());
}

}  // namespace tessera::engine
