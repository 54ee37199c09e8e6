#include "engine/model/gradient_norms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "engine/model/agreement.hpp"
#include "engine/unit/host_copy.hpp"
#include "kernels/table.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {
namespace {

/// Calls `visit` with each run of one parameter within `range` of a segment, as a part of
/// `gradient`, which holds the elements of `kept`.
template <class Visit>
void for_each_run(const SegmentLayout& segment, const Range& range, const Range& kept,
                  const View& gradient, const Visit& visit) {
  for (const Piece& piece : segment.pieces(Ranges{range})) {
    visit(piece.parameter,
          gradient.slice(range.first - kept.first + piece.first_in_shard, piece.elems));
  }
}

/// The same for what this rank keeps of one parameter's gradient.
template <class Visit>
void for_each_run(const LiveUnit& unit, std::size_t parameter, const Visit& visit) {
  for (std::size_t s = 0; s < unit.plan().segments(); ++s) {
    const View gradient = unit.gradients().resident(s);
    const Range kept = unit.plan().owned[s].updates;
    if (gradient.elems == 0) { continue; }
    for_each_run(unit.plan().layout.segments()[s], kept, kept, gradient,
                 [&](std::size_t which, View run) {
                   if (which == parameter) { visit(run); }
                 });
  }
}

}  // namespace

// A rank that updates all shards, under dp, sums each of them.
GradientNorms::GradientNorms(World& world, const LiveUnits& units, const ShardPlace& place)
    : world_{world}, units_{units}, place_{place} {
  for (const LiveUnit& unit : units) {
    const UnitPlan& plan = unit.plan();
    const bool all_shards = plan.traits.optimizer == Holding::rank0;
    const int first = all_shards ? 0 : place.normed_shard();
    const int count = all_shards ? place.data_ranks() : 1;
    for (std::size_t s = 0; s < plan.segments(); ++s) {
      const View gradient = unit.gradients().resident(s);
      if (gradient.elems == 0 || !plan.owned[s].normed) { continue; }
      const SegmentLayout& segment = plan.layout.segments()[s];
      for (int shard = first; shard < first + count; ++shard) {
        for_each_run(segment, segment.shard(shard), plan.owned[s].updates, gradient,
                     [&](std::size_t parameter, View run) {
                       parts_.push_back({parameters_ + parameter, shard, run});
                     });
      }
    }
    parameters_ += plan.infos.size();
  }
}

void GradientNorms::add_squares(double* sums) const {
  std::vector<kernels::NormTerm> terms;
  const auto columns = static_cast<std::size_t>(place_.norms());
  for (const Part& part : parts_) {
    const auto column =
        static_cast<std::size_t>(place_.first_norm()) + static_cast<std::size_t>(part.shard);
    terms.push_back(
        {part.gradient.values(), part.gradient.elems, &sums[part.number * columns + column]});
  }
  if (!terms.empty()) { world::kernels_of(world_).squared_norm(terms, world_.compute_stream()); }
}

// Reads the shard on the host: this norm is rare, and needs no kernel of its own.
void GradientNorms::find_largest(double* largest) const {
  constexpr std::int64_t most = std::int64_t{1} << 18;  // 1 MiB of staging
  HostCopy copy{world_};
  std::vector<float> host;
  std::vector<double> found(parameters_, 0.0);
  for (const Part& part : parts_) {
    double& of_parameter = found[part.number];
    for (std::int64_t at = 0; at < part.gradient.elems; at += most) {
      host.resize(static_cast<std::size_t>(std::min(most, part.gradient.elems - at)));
      copy.read(host, part.gradient.slice(at, std::ssize(host)));
      for (const float value : host) {
        // No comparison finds a NaN, and the maximum of the ranks' values would lose it.
        const double size = std::isnan(value) ? HUGE_VAL : std::fabs(value);
        of_parameter = std::max(of_parameter, size);
      }
    }
  }
  const Stream compute = world_.compute_stream();
  world_.device().copy_in(largest, found.data(), found.size() * sizeof(double), compute);
  compute.wait();
}

// `each`: sums for a parameter.
std::vector<double> GradientNorms::reduced(std::size_t each, Norm norm) const {
  const std::size_t count = parameters_ * each;
  const Stream compute = world_.compute_stream();
  const Buffer memory =
      world_.allocate(Category::workspace, (count + 1) * sizeof(double), "gradient norms");
  auto* const sums = static_cast<double*>(memory.data());
  world_.device().fill(sums, 0, memory.bytes(), compute);
  if (world_.device().computes()) { norm == Norm::two ? add_squares(sums) : find_largest(sums); }
  Batch batch{norm == Norm::two ? "2-norms of gradients" : "infinity norms of gradients"};
  batch.all_reduce({sums, static_cast<std::int64_t>(count), DType::fp64},
                   norm == Norm::two ? ReduceOp::sum : ReduceOp::max);
  OwnedEvent mark = world_.device().make_event();
  OwnedEvent met = world_.device().make_event();
  // A rank that goes on to a pass instead, which gathers first, is noticed there.
  const bool meets = can_disagree(world_);
  const Channel gather = world_.gather_channel();
  if (meets) {
    Batch meeting{batch.label()};
    meeting.all_reduce({sums + count, 1, DType::fp64});
    submit_after(compute, gather, std::move(meeting), met.get());
  }
  submit_in_order(compute, world_.reduce_channel(), std::move(batch), mark.get());
  if (meets) {
    gather.stream.record(met.get());
    compute.wait_for(met.get());
  }
  std::vector<double> host(count, 0.0);
  world_.device().copy_out(host.data(), sums, count * sizeof(double), compute);
  compute.wait();
  return host;
}

std::vector<std::vector<double>> GradientNorms::compute(Norm norm) const {
  // Only one rank has a nonzero value in each entry, so the sums over ranks are exact.
  const std::size_t each = norm == Norm::two ? static_cast<std::size_t>(place_.norms()) : 1;
  const std::vector<double> sums = reduced(each, norm);
  std::span<const double> rest{sums};
  std::vector<std::vector<double>> norms;
  for (const LiveUnit& unit : units_) {
    std::vector<double>& of_unit = norms.emplace_back();
    for (std::size_t p = 0; p < unit.plan().infos.size(); ++p) {
      double sum = 0.0;
      for (const double one : rest.first(each)) { sum += one; }
      of_unit.push_back(norm == Norm::two ? std::sqrt(sum) : sum);
      rest = rest.subspan(each);
    }
  }
  return norms;
}

// An odd factor and shifts let each number change the upper and the lower bits.
void Scalings::add(const ParameterRef& at, std::uint64_t what) noexcept {
  ++count_;
  for (const std::uint64_t number : {std::uint64_t{at.unit}, std::uint64_t{at.parameter}, what}) {
    digest_ = (digest_ ^ number) * 0x9E3779B97F4A7C15U;
    digest_ ^= digest_ >> 32U;
  }
}

void Scalings::scaled(const ParameterRef& at, float factor) noexcept {
  add(at, std::bit_cast<std::uint32_t>(factor));
}

void Scalings::cleared(const ParameterRef& at) noexcept {
  add(at, std::uint64_t{1} << 32U);  // no factor
}

std::string Scalings::describe() const {
  if (count_ == 0) { return {}; }
  return fmt::format(", gradients multiplied or cleared {} times (digest {:016x})", count_,
                     digest_);
}

void scale_gradient(World& world, const LiveUnit& unit, std::size_t parameter, float factor) {
  for_each_run(unit, parameter, [&](View run) {
    world::kernels_of(world).scale(run.values(), factor, run.elems, world.compute_stream());
  });
}

void clear_gradient(World& world, const LiveUnit& unit, std::size_t parameter) {
  for_each_run(unit, parameter, [&](View run) {
    world.device().fill(run.data, 0, run.bytes(), world.compute_stream());
  });
}

}  // namespace tessera::engine
