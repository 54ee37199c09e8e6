#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/tcp/frame.hpp"

namespace tessera {

/// The groups of a job's ranks, by number, as far as this process has heard of them: who is in one,
/// and what errors call its calls. All ranks are one from the start, kAllRanks.
class RankGroups {
 public:
  explicit RankGroups(int ranks);

  /// `members` in ascending order. CommError if that cannot be, or is known otherwise.
  void add(std::uint64_t group, const std::string& name, const std::vector<int>& members);
  /// In ascending order. CommError if the group is not known.
  [[nodiscard]] const std::vector<int>& members(std::uint64_t group) const;
  /// Of `rank` among them. CommError if it is none.
  [[nodiscard]] std::size_t place(std::uint64_t group, int rank) const;
  /// "gather", "shard reduce".
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

}  // namespace tessera
