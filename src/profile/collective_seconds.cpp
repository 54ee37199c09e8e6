#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera {
namespace {

constexpr double kTreeShare = 0.9;  // of the rings' bandwidth, as NCCL counts it

/// How a group is spread over the levels.
struct Spread {
  int ranks = 0;
  std::vector<int> blocks;  ///< for each level that it touches, the last with 1
  std::vector<int> fewest;  ///< for each level: the members in the block below with the fewest
};

int blocks_of(const std::vector<int>& members, int size) {
  if (size == 0) { return 1; }
  int blocks = 0;
  int last = -1;
  for (const int rank : members) {
    blocks += rank / size != last ? 1 : 0;
    last = rank / size;
  }
  return blocks;
}

int fewest_in_block(const std::vector<int>& members, int size) {
  int fewest = static_cast<int>(members.size());
  int here = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    ++here;
    const bool last = i + 1 == members.size() || members[i + 1] / size != members[i] / size;
    if (!last) { continue; }
    fewest = std::min(fewest, here);
    here = 0;
  }
  return fewest;
}

Spread spread_of(const std::vector<int>& members, const MachineProfile& profile) {
  if (profile.levels.empty()) {
    throw ConfigError{
        fmt::format("ranks {} to {} communicate, but the machine's profile has no links between "
                    "ranks; measure them (docs/gpu-check.md, part multi), or plan one rank",
                    members.front(), members.back())};
  }
  Spread spread{static_cast<int>(members.size()), {}, {}};
  int below = 1;
  for (const LinkLevel& level : profile.levels) {
    spread.blocks.push_back(blocks_of(members, level.ranks));
    spread.fewest.push_back(fewest_in_block(members, below));
    below = level.ranks;
    if (spread.blocks.back() == 1) { return spread; }
  }
  const LinkLevel& top = profile.levels.back();
  throw ConfigError{
      fmt::format("ranks {} to {} communicate, but the machine's profile has no link between its "
                  "blocks of {} ranks (level {}); add a level, or plan fewer ranks",
                  members.front(), members.back(), top.ranks, top.name)};
}

bool is(const trace::CollectiveWork& work, std::string_view name) {
  return work.name == name;
}

class Links {
 public:
  Links(const Spread& spread, const MachineProfile& profile) : spread_{spread}, profile_{profile} {}

  [[nodiscard]] int below(std::size_t level) const {
    return level == 0 ? spread_.ranks : spread_.blocks[level - 1];
  }
  [[nodiscard]] double bytes_per_second() const {
    double least = 0;
    for (std::size_t i = 0; i < spread_.blocks.size(); ++i) {
      if (below(i) == spread_.blocks[i]) { continue; }  // no traffic passes over it
      const double rate = profile_.levels[i].bytes_per_second * spread_.fewest[i];
      least = least == 0 ? rate : std::min(least, rate);
    }
    return least;
  }
  [[nodiscard]] double ring_steps(std::size_t protocol) const {
    double seconds = 0;
    for (std::size_t i = 0; i < spread_.blocks.size(); ++i) {
      seconds += (below(i) - spread_.blocks[i]) * profile_.levels[i].step_seconds[protocol];
    }
    return seconds;
  }
  [[nodiscard]] double tree_steps(std::size_t protocol) const {
    const double nodes = spread_.blocks.front();
    const double within = spread_.ranks / nodes - 1;
    return within * profile_.levels.front().step_seconds[protocol] +
           std::ceil(std::log2(nodes)) *
               profile_.levels[spread_.blocks.size() - 1].step_seconds[protocol];
  }

 private:
  const Spread& spread_;
  const MachineProfile& profile_;
};

CollectiveSeconds ring(const trace::CollectiveWork& work, const Spread& spread,
                       const MachineProfile& profile) {
  const Links links{spread, profile};
  const double n = spread.ranks;
  const double rate = links.bytes_per_second();
  const bool reduces_all = is(work, "all_reduce");
  const bool whole = is(work, "broadcast") || is(work, "reduce");
  const double passed = (whole ? 1 : (n - 1) / n) * (reduces_all ? 2 : 1) * work.bytes;
  CollectiveSeconds best{-1, 0, static_cast<int>(spread.blocks.size()) - 1};
  const auto offer = [&best](double latency, double moving) {
    if (best.latency >= 0 && best.latency + best.moving <= latency + moving) { return; }
    best.latency = latency;
    best.moving = moving;
  };
  for (std::size_t p = 0; p < profile.protocols.size(); ++p) {
    const LinkProtocol& protocol = profile.protocols[p];
    const double share = rate * protocol.bandwidth_share;
    offer(protocol.start_seconds + (reduces_all ? 2 : 1) * links.ring_steps(p), passed / share);
    if (!reduces_all) { continue; }
    offer(protocol.start_seconds + 2 * links.tree_steps(p), 2 * work.bytes / (kTreeShare * share));
  }
  return best;
}

CollectiveSeconds direct(const trace::CollectiveWork& work, const Spread& spread,
                         const MachineProfile& profile) {
  const double n = spread.ranks;
  const double copying = work.bytes / profile.levels.front().bytes_per_second;
  const double adding = work.bytes / profile.reduce_bytes_per_second;
  const double meeting =
      profile.protocols.front().start_seconds + n * profile.levels.front().step_seconds.front();
  if (is(work, "all_reduce")) { return {3 * meeting, adding + copying * (n - 1) / n, 0}; }
  if (is(work, "reduce_scatter") || is(work, "reduce")) { return {2 * meeting, adding, 0}; }
  return {2 * meeting, is(work, "gather") ? copying / n : copying, 0};
}

}  // namespace

CollectiveSeconds collective_seconds(const trace::CollectiveWork& work,
                                     const std::vector<int>& members,
                                     const MachineProfile& profile) {
  if (members.size() <= 1) { return {}; }
  const Spread spread = spread_of(members, profile);
  return profile.way == CollectiveWay::direct ? direct(work, spread, profile)
                                              : ring(work, spread, profile);
}

}  // namespace tessera
