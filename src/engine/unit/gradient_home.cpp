#include "engine/unit/gradient_home.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::engine {

GradientHome::GradientHome(const Parts& parts)
    : plan_{parts.plan},
      lane_{parts.lane},
      traits_{parts.traits},
      wire_{parts.wire_ring == nullptr
                ? nullptr
                : std::make_unique<Wire>(parts.lane.world(), parts.plan, *parts.wire_ring)},
      host_{parts.host},
      kept_{parts.kept},
      contents_(parts.plan.infos.size(), Content::written),
      writers_(contents_.size()),
      taken_(contents_.size(), false) {}

View GradientHome::updated(std::size_t segment) const {
  const Range range = plan_.owned[segment].updates;
  return whole(segment).slice(range.first, range.elems);
}

void GradientHome::open(GradientInit content) {
  open_ = true;
  if (plan_.trainable() && make_room()) { clear(content); }
}

kernels::Write GradientHome::write(std::size_t parameter, std::size_t scope) {
  using kernels::Write;
  if (plan_.options.gradients == GradientInit::unzeroed) { return Write::overwrite; }
  if (contents_[parameter] == Content::written) { return Write::add; }
  if (contents_[parameter] == Content::to_be_written) {
    throw ContractError{
        fmt::format("write of '{}' was called twice without taking the gradient in between; call "
                    "grad after each write",
                    plan_.infos[parameter].full_name())};
  }
  contents_[parameter] = Content::to_be_written;
  writers_[parameter] = scope;
  return Write::overwrite;
}

void GradientHome::take(std::size_t parameter) {
  if (contents_[parameter] == Content::anything) { fill_with_zeros(parameter); }
  contents_[parameter] = Content::written;
  taken_[parameter] = true;
}

void GradientHome::freeze(std::size_t parameter) {
  if (open_ && plan_.options.gradients == GradientInit::unzeroed) {
    contents_[parameter] = Content::anything;
  }
}

void GradientHome::zero_unwritten() {
  for (std::size_t p = 0; p < contents_.size(); ++p) {
    if (contents_[p] != Content::written) { fill_with_zeros(p); }
  }
}

void GradientHome::require_taken(std::size_t scope, std::string_view name) const {
  for (std::size_t p = 0; p < contents_.size(); ++p) {
    if (contents_[p] != Content::to_be_written || writers_[p] != scope) { continue; }
    throw ContractError{fmt::format(
        "backward scope of unit '{}': write of '{}' was called, but its gradient was not taken and "
        "is undefined; call grad after write, and let a kernel write all of it",
        name, plan_.infos[p].full_name())};
  }
}

void GradientHome::fill_with_zeros(std::size_t parameter) {
  const auto location = plan_.layout.locate(parameter);
  if (!location) { return; }  // another unit's
  const View all = whole(location->segment);
  if (all.elems == 0) { return; }  // frozen
  const View own = all.slice(location->first, plan_.layout.part(parameter).elems());
  world().device().fill(own.data, 0, own.bytes(), world().compute_stream());
}

void GradientHome::clear(GradientInit content) {
  const Stream compute = world().compute_stream();
  const bool anything = content == GradientInit::first_write;
  std::ranges::fill(contents_, anything ? Content::anything : Content::written);
  // The trainer does not overwrite frozen gradients.
  for (std::size_t p = 0; p < contents_.size(); ++p) {
    if (content == GradientInit::unzeroed && plan_.frozen[p]) { contents_[p] = Content::anything; }
  }
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    const View all = whole(s);
    if (all.elems == 0) { continue; }
    if (content == GradientInit::zeroed) {
      world().device().fill(all.data, 0, all.bytes(), compute);
      continue;
    }
    // The trainer overwrites its own elements, or gets them zeroed when it asks; padding must not
    // reach the norm.
    for (const Range gap : plan_.layout.segments()[s].padding()) {
      const View hole = all.slice(gap.first, gap.elems);
      world().device().fill(hole.data, 0, hole.bytes(), compute);
    }
  }
}

bool GradientHome::complete(bool last_micro_batch) {
  open_ = false;
  if (!plan_.trainable()) {
    reduced_ = true;
    return false;
  }
  if (!leaves_each_time() && !last_micro_batch) { return false; }
  zero_unwritten();
  reduced_ = reduced_ || last_micro_batch;
  return true;
}

void GradientHome::append_reductions(Batch& batch, Batch& across) {
  const auto gradient = [this](std::size_t segment) { return whole(segment); };
  if (wire_) { wire_->load(gradient, lane_.stream()); }
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    const View all = wire_ ? wire_->view(s, whole(s)) : whole(s);
    if (all.elems == 0) { continue; }
    if (traits_.optimizer == Holding::rank0) {
      batch.reduce(all, ReduceOp::sum, 0);
    } else if (traits_.optimizer == Holding::replicated) {
      batch.all_reduce(all);
    } else {
      const Range kept = plan_.owned[s].updates;
      const View own = all.slice(kept.first, kept.elems);
      batch.reduce_scatter(all, own);
      if (lane_.group().across()) { across.all_reduce(own); }
    }
  }
}

void GradientHome::keep() {
  if (wire_) {
    wire_->unload([this](std::size_t segment) { return whole(segment); }, lane_.stream());
  }
  plan_.updated_on_host() ? keep_on_host() : keep_on_device();
}

void GradientHome::begin_export() {
  const bool in_slot = exports_in_slot();
  const bool is_whole = traits_.optimizer == Holding::replicated && !in_slot;
  if (!plan_.trainable() || is_whole) { return; }
  lane_.order_after_compute();
  if (in_slot) { take_export_slot(); }
  const bool in_place = !in_slot || plan_.updated_on_host();
  Batch batch{"export " + plan_.name};
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    const View all = whole(s);
    if (all.elems == 0) { continue; }
    if (traits_.optimizer == Holding::rank0) {
      batch.broadcast(all, 0);
    } else if (traits_.optimizer == Holding::sharded) {
      batch.all_gather(in_place ? updated(s) : resident(s), all);
    }
  }
  lane_.submit(std::move(batch));
  lane_.settle();
}

}  // namespace tessera::engine
