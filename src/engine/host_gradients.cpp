#include "engine/host_gradients.hpp"

#include <algorithm>
#include <span>

#include "kernels/table.hpp"

namespace tessera::engine {
namespace {

const std::string kAllUnits = "all units";

}  // namespace

HostGradients::HostGradients(World& world, const std::vector<UnitState>& units,
                             const Options& options)
    : world_{world},
      units_{units},
      produced_{world.device().make_event()},
      mark_{world.device().make_event()} {
  for (std::size_t u = 0; u < units.size(); ++u) {
    copied_.push_back(world.device().make_event());
    read_.push_back(world.device().make_event());
  }
  allocate(options);
  if (options.norms) { plan_norms(options); }
  if (options.accumulate) { make_staging(); }
}

void HostGradients::allocate(const Options& options) {
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const auto segments = units_[u].layout.segments();
    auto& views = views_.emplace_back();
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const std::int64_t elems = units_[u].offloaded ? options.updated(u, s).elems : 0;
      views.push_back({nullptr, elems, segments[s].dtypes().gradient});
      bytes += Arena::need(views.back().bytes());
    }
  }
  arena_ = Arena{world_.allocate_host(Category::gradients, bytes, "gradients in the host pool")};
  for (auto& views : views_) {
    for (View& view : views) {
      if (view.elems > 0) { view.data = arena_.take(view.bytes()); }
    }
  }
}

// As OptimizerStep plans them for what stays on the device.
void HostGradients::plan_norms(const Options& options) {
  std::int64_t spans = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t s = 0; s < views_[u].size(); ++s) {
      if (views_[u][s].elems == 0) { continue; }
      const std::int64_t kept = options.updated(u, s).first;
      for (const int index : options.shards) {
        const Range shard = units_[u].layout.segments()[s].shard(index);
        const View part = views_[u][s].slice(shard.first - kept, shard.elems);
        terms_.push_back({u, part.values(), part.elems, index, nullptr});
        spans += kernels::squared_norm_spans(part.elems);
      }
    }
  }
  if (terms_.empty()) { return; }
  const auto bytes = [](std::int64_t doubles) {
    return static_cast<std::size_t>(doubles) * sizeof(double);
  };
  sums_arena_ = Arena{world_.allocate_host(
      Category::workspace, Arena::need(bytes(world_.size())) + Arena::need(bytes(spans)),
      "norms in the host pool")};
  sums_ = static_cast<double*>(sums_arena_.take(bytes(world_.size())));
  auto* next = static_cast<double*>(sums_arena_.take(bytes(spans)));
  for (Term& term : terms_) {
    term.spans = next;
    next += kernels::squared_norm_spans(term.elems);
  }
}

void HostGradients::make_staging() {
  std::size_t most = 0;
  for (const auto& views : views_) {
    std::size_t bytes = 0;
    for (const View& view : views) { bytes += Arena::need(view.bytes()); }
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

void HostGradients::take(std::size_t unit, Stream producer, const ViewOf& gradients, bool first) {
  producer.record(produced_.get());
  lane().wait_for(produced_.get());
  first ? copy(unit, gradients) : add(unit, gradients);
}

void HostGradients::copy(std::size_t unit, const ViewOf& gradients) {
  lane().wait_for(read_[unit].get());
  for (std::size_t s = 0; s < views_[unit].size(); ++s) {
    const View to = views_[unit][s];
    if (to.elems == 0) { continue; }
    world_.offload(to.data, gradients(s).data, to.bytes(), units_[unit].name, CopyLane::states);
  }
  lane().record(copied_[unit].get());
}

// As the device would add them: the kernels' bits are the same.
void HostGradients::add(std::size_t unit, const ViewOf& gradients) {
  Staging& staging = staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  const Stream host = world_.host_stream();
  lane().wait_for(staging.added.get());
  std::vector<std::pair<View, ConstValues>> sums;
  std::byte* at = staging.data;
  for (std::size_t s = 0; s < views_[unit].size(); ++s) {
    const View to = views_[unit][s];
    if (to.elems == 0) { continue; }
    world_.offload(at, gradients(s).data, to.bytes(), units_[unit].name, CopyLane::states);
    sums.emplace_back(to, ConstValues{at, to.dtype});
    at += Arena::need(to.bytes());
  }
  lane().record(staging.filled.get());
  host.wait_for(copied_[unit].get());
  host.wait_for(staging.filled.get());
  const auto work = [sums = std::move(sums)](Stream cpu) {
    for (const auto& [to, from] : sums) {
      kernels::cpu_table().accumulate(to.values(), from, to.elems, cpu);
    }
  };
  world_.compute_on_host(work, "accumulate", units_[unit].name);
  host.record(staging.added.get());
}

void HostGradients::complete(std::size_t unit) {
  const auto of_unit = std::ranges::equal_range(terms_, unit, {}, &Term::unit);
  if (of_unit.empty()) { return; }
  world_.host_stream().wait_for(copied_[unit].get());
  const auto work = [terms = std::span<const Term>{of_unit}](Stream cpu) {
    for (const Term& term : terms) {
      kernels::cpu::span_sums(term.gradient, term.elems, term.spans, cpu);
    }
  };
  world_.compute_on_host(work, "norm", units_[unit].name);
}

void HostGradients::release(std::size_t unit) {
  world_.host_stream().record(read_[unit].get());
}

const double* HostGradients::sum_norms(Stream reader) {
  const auto work = [this](Stream) {
    std::fill_n(sums_, world_.size(), 0.0);
    for (const Term& term : terms_) {
      const std::int64_t spans = kernels::squared_norm_spans(term.elems);
      for (std::int64_t i = 0; i < spans; ++i) { sums_[term.shard] += term.spans[i]; }
    }
  };
  world_.compute_on_host(work, "norm", kAllUnits);
  world_.host_stream().record(mark_.get());
  reader.wait_for(mark_.get());
  return sums_;
}

void HostGradients::settle(Stream stream) {
  lane().record(mark_.get());
  stream.wait_for(mark_.get());
}

}  // namespace tessera::engine
