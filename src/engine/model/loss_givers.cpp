#include "engine/model/loss_givers.hpp"

#include <fmt/format.h>

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
      WorldAccess::name_of(world, gives), WorldAccess::name_of(world, other), what)};
}

}  // namespace

void LossGivers::compare(bool gives) const {
  const std::vector<std::string> all = world_.exchange(gives ? kGives : "none");
  std::optional<int> giver;
  for (int rank = 0; rank < world_.size() && !giver; ++rank) {
    const bool counts = model_place(options_, rank).tensor.index == 0;
    if (counts && all[static_cast<std::size_t>(rank)] == kGives) { giver = rank; }
  }
  if (!giver) { return; }
  const int place = model_place(options_, *giver).pipe;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const ModelPlace at = model_place(options_, rank);
    if (at.tensor.index != 0) { continue; }  // those along `tensor` have the same loss
    const bool also = all[static_cast<std::size_t>(rank)] == kGives;
    if (at.pipe == place && !also) { refuse(world_, *giver, rank, " gives none"); }
    if (at.pipe != place && also) {
      refuse(world_, *giver, rank, ", at another place along `pipe`, does too");
    }
  }
}

std::string LossGivers::check(bool gives) {
  if (!can_disagree(world_)) { return {}; }
  if (!gave_) { compare(gives); }
  const bool changed = gave_.value_or(gives) != gives;
  const ModelPlace last = model_place(options_, world_.size() - 1);
  const bool divided = last.tensor.size > 1 || last.pipe > 0;
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
