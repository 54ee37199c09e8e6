#include "engine/model/non_finite_search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "kernels/table.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {
namespace {

std::size_t bytes_of(const World& world) {
  return static_cast<std::size_t>(world.size()) * sizeof(double);
}

std::string_view name_of(Suspect::What what) {
  switch (what) {
    case Suspect::What::parameters:
      return "parameters";
    case Suspect::What::output:
      return "output";
    case Suspect::What::gradients:
      break;
  }
  return "gradients";
}

std::string name_ranks(const std::vector<int>& ranks, int all) {
  if (std::ssize(ranks) == all && all > 1) { return fmt::format("all {} ranks", all); }
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

}  // namespace

NonFiniteSearch::NonFiniteSearch(World& world, std::int64_t max_skips,
                                 std::vector<std::size_t> staged_units)
    : world_{world},
      max_skips_{max_skips},
      staged_units_{std::move(staged_units)},
      next_may_be_last_{max_skips > 0 && max_skips <= 2},
      found_{world.allocate(Category::workspace, bytes_of(world), "first values not finite")},
      mark_{world.device().make_event()} {
  world.device().fill(found_.data(), 0, bytes_of(world), world.compute_stream());
}

void NonFiniteSearch::continue_after(std::int64_t skipped_in_a_row) noexcept {
  most_skipped_ = skipped_in_a_row;
  next_may_be_last_ = max_skips_ > 0 && most_skipped_ + 2 >= max_skips_;
}

void NonFiniteSearch::begin_step() {
  searching_ = next_may_be_last_;
  suspects_.clear();
  if (!searching_) { return; }
  world_.device().fill(found_.data(), 0, bytes_of(world_), world_.compute_stream());
}

// This step and the next may also be skipped.
bool NonFiniteSearch::needs_outcome() const noexcept {
  return max_skips_ > 0 && most_skipped_ + 2 >= max_skips_;
}

void NonFiniteSearch::learn(const kernels::StepScalars& before) noexcept {
  most_skipped_ = before.skipped_in_a_row;
}

bool NonFiniteSearch::end_step() noexcept {
  ++most_skipped_;
  next_may_be_last_ = max_skips_ > 0 && most_skipped_ + 1 >= max_skips_;
  return max_skips_ > 0 && most_skipped_ >= max_skips_;
}

void NonFiniteSearch::look(const Suspect& suspect, ConstView values) {
  // Counts suspects that this rank does not have, too: all ranks number alike.
  if (staged_units_.empty()) { suspects_.push_back(suspect); }
  if (values.elems == 0) { return; }
  const double number =
      staged_units_.empty() ? static_cast<double>(suspects_.size()) : number_in_stages(suspect);
  auto* const mine = static_cast<double*>(found_.data()) + world_.rank();
  world::kernels_of(world_).find_non_finite(values, number, mine, world_.compute_stream());
}

// Each stage looks in its own order. A micro-batch passes the units forward, each with its
// parameters and its output, and then back.
double NonFiniteSearch::number_in_stages(const Suspect& suspect) const noexcept {
  const auto units = static_cast<double>(staged_units_.size());
  const auto found = std::ranges::find(staged_units_, suspect.unit);
  const auto unit = static_cast<double>(found - staged_units_.begin());
  const double begin = 3.0 * units * suspect.micro_batch + 1.0;
  if (suspect.what == Suspect::What::gradients) { return begin + 3.0 * units - 1.0 - unit; }
  return begin + 2.0 * unit + (suspect.what == Suspect::What::output ? 1.0 : 0.0);
}

Suspect NonFiniteSearch::suspect_in_stages(double number) const noexcept {
  const auto place = static_cast<std::size_t>(number) - 1;
  const std::size_t units = staged_units_.size();
  const std::size_t of_micro_batch = place % (3 * units);
  const auto micro_batch = static_cast<int>(place / (3 * units));
  if (of_micro_batch >= 2 * units) {
    const std::size_t unit = staged_units_[3 * units - 1 - of_micro_batch];
    return {Suspect::What::gradients, unit, micro_batch};
  }
  const bool output = of_micro_batch % 2 == 1;
  return {output ? Suspect::What::output : Suspect::What::parameters,
          staged_units_[of_micro_batch / 2], micro_batch};
}

std::optional<NonFiniteSearch::Origin> NonFiniteSearch::origin() {
  const Stream compute = world_.compute_stream();
  Batch batch{"origin of values that are not finite"};
  batch.all_reduce({found_.data(), world_.size(), DType::fp64});
  submit_in_order(compute, world_.reduce_channel(), std::move(batch), mark_.get());
  std::vector<double> found(static_cast<std::size_t>(world_.size()));
  world_.device().copy_out(found.data(), found_.data(), bytes_of(world_), compute);
  compute.wait();

  double first = 0.0;
  for (const double place : found) {
    if (place > 0.0 && (first == 0.0 || place < first)) { first = place; }
  }
  const bool unknown = staged_units_.empty() && static_cast<std::size_t>(first) > suspects_.size();
  if (first == 0.0 || unknown) { return {}; }
  Origin origin{staged_units_.empty() ? suspects_[static_cast<std::size_t>(first) - 1]
                                      : suspect_in_stages(first),
                {}};
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == first) { origin.ranks.push_back(static_cast<int>(rank)); }
  }
  return origin;
}

std::string describe(const NonFiniteSearch::Origin& origin, const std::string& unit, int ranks,
                     int micro_batches) {
  const std::string when =
      micro_batches == 1
          ? ""
          : fmt::format(", in micro-batch {} of {}", origin.suspect.micro_batch + 1, micro_batches);
  return fmt::format("in the {} of unit '{}' on {}{}", name_of(origin.suspect.what), unit,
                     name_ranks(origin.ranks, ranks), when);
}

}  // namespace tessera::engine
