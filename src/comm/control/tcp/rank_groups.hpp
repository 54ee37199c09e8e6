#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/tcp/frame.hpp"

namespace tessera::comm {

/// The groups of a job's ranks that this process knows, by number: their members, and the names of
/// their channels in errors. The group of all ranks, kAllRanks, always exists.
class RankGroups {
 public:
  explicit RankGroups(int ranks);

  /// Adds a group of `members`, in ascending order. Throws CommError if they are invalid in this
  /// job, or if another group already has the number.
  void add(std::uint64_t group, const std::string& name, const std::vector<int>& members);
  /// Returns the group's ranks in ascending order. Throws CommError if the group is unknown.
  [[nodiscard]] const std::vector<int>& members(std::uint64_t group) const;
  /// Returns the index of `rank` among the group's members. Throws CommError if `rank` is not a
  /// member.
  [[nodiscard]] std::size_t place(std::uint64_t group, int rank) const;
  /// Returns the name of the call's channel, such as "gather" or "shard reduce".
  [[nodiscard]] std::string_view channel_name(const CallSeries& call) const;

 private:
  struct Group {
    std::string name;
    std::vector<int> members;
    friend bool operator==(const Group&, const Group&) = default;
  };
  [[nodiscard]] const Group& find(std::uint64_t group) const;

  int ranks_;
  std::map<std::uint64_t, Group> groups_;
};

}  // namespace tessera::comm
