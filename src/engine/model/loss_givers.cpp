#include "engine/model/loss_givers.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "engine/model/agreement.hpp"
#include "engine/plan/sharding.hpp"
#include "tessera/base/error.hpp"
#include "world/world_access.hpp"

namespace tessera::engine {
namespace {

constexpr const char* kGives = "gives";

[[noreturn]] void refuse(World& world, int gives, int other, const char* what) {
  throw ContractError{fmt::format(
      "step: {} gives a loss, and {}{}; the reported loss is the mean over the ranks that compute "
      "with different data: give it on all of them (with `pipe`, on all of one place and on no "
      "other), or on none",
      world::WorldAccess::name_of(world, gives), world::WorldAccess::name_of(world, other), what)};
}

void require_giver(bool counts, bool any) {
  expects(
      any || !counts,
      "step: LossCount counts the tokens of a loss, and none is given: give it on the ranks that "
      "compute it");
}

/// `gives`: by rank. Returns whether any rank gives a loss that counts.
bool require_equal(World& world, const ModelOptions& options,
                   const std::vector<std::string>& gives) {
  std::optional<int> giver;
  for (int rank = 0; rank < world.size() && !giver; ++rank) {
    const bool counts = model_place(options, rank).tensor.index == 0;
    if (counts && gives[static_cast<std::size_t>(rank)] == kGives) { giver = rank; }
  }
  if (!giver) { return false; }
  const int place = model_place(options, *giver).pipe;
  for (int rank = 0; rank < world.size(); ++rank) {
    const ModelPlace at = model_place(options, rank);
    if (at.tensor.index != 0) { continue; }  // those along `tensor` have the same loss
    const bool also = gives[static_cast<std::size_t>(rank)] == kGives;
    if (at.pipe == place && !also) { refuse(world, *giver, rank, " gives none"); }
    if (at.pipe != place && also) {
      refuse(world, *giver, rank, ", at another place along `pipe`, does too");
    }
  }
  return true;
}

}  // namespace

void LossGivers::compare() {
  if (compared_ || !can_disagree(world_)) { return; }
  const std::optional<bool> gave = std::exchange(gave_, std::nullopt);  // a refused step was none
  any_ = require_equal(world_, options_, world_.exchange(gave.value_or(false) ? kGives : "none"));
  require_giver(counts_, any_);
  gave_ = gave;
  compared_ = true;
}

std::string LossGivers::check(bool gives, bool counts) {
  const ModelPlace last = model_place(options_, world_.size() - 1);
  const bool divided = last.tensor.size > 1 || last.pipe > 0;
  counts_ = counts;
  if (!divided || compared_) { require_giver(counts, divided ? any_ : gives); }
  if (!can_disagree(world_)) { return {}; }
  const bool changed = gave_.value_or(gives) != gives;
  if (changed && divided) {
    throw ContractError{fmt::format(
        "step: this rank {} now, unlike in the steps before; on a mesh with `tensor` or `pipe` a "
        "rank gives it in every step or in none",
        gives ? "gives a loss" : "gives no loss")};
  }
  gave_ = gives;
  if (!changed) { return {}; }
  return gives ? ", now with a loss" : ", now without a loss";
}

}  // namespace tessera::engine
