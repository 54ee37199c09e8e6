#include "comm/division.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// A text that is too short (another call's) has groups -1 and no name.
Division decode(const std::string& code, std::size_t ranks) {
  Division division{.groups = std::vector<std::int32_t>(ranks, -1), .name = {}};
  const std::size_t bytes = ranks * sizeof division.groups[0];
  std::memcpy(division.groups.data(), code.data(), std::min(code.size(), bytes));
  if (code.size() > bytes) { division.name = code.substr(bytes); }
  return division;
}

}  // namespace

Division divide(const GroupOf& group_of, int ranks, const std::string& name,
                const std::function<int(int)>& job_rank) {
  Division division{.groups = {}, .name = name};
  division.groups.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const int group = group_of(rank);
    if (group < 0) {
      throw ContractError{fmt::format("split \"{}\": rank {} is in group {}; groups count from 0",
                                      name, job_rank(rank), group)};
    }
    division.groups.push_back(group);
  }
  return division;
}

std::string encode(const Division& division) {
  const std::size_t bytes = division.groups.size() * sizeof(std::int32_t);
  std::string code(bytes, '\0');
  std::memcpy(code.data(), division.groups.data(), bytes);
  return code += division.name;
}

std::uint64_t hash_of(const std::string& code) {
  return XXH3_64bits(code.data(), code.size());
}

std::optional<std::string> first_difference(std::span<const std::string> codes,
                                            const std::function<int(int)>& job_rank) {
  const auto odd = std::ranges::find_if(codes, [&](const auto& c) { return c != codes.front(); });
  if (odd == codes.end()) { return {}; }
  const int culprit = job_rank(static_cast<int>(odd - codes.begin()));
  const Division first = decode(codes.front(), codes.size());
  const Division other = decode(*odd, codes.size());
  if (first.name != other.name) {
    return fmt::format("rank {} splits off \"{}\" where rank {} splits off \"{}\"", culprit,
                       other.name, job_rank(0), first.name);
  }
  const auto at = std::ranges::mismatch(first.groups, other.groups);
  if (at.in1 == first.groups.end()) {
    return fmt::format("rank {} makes another call where rank {} splits", culprit, job_rank(0));
  }
  const int where = job_rank(static_cast<int>(at.in1 - first.groups.begin()));
  return fmt::format(
      "split \"{}\": rank {} has rank {} in group {}, but rank {} has it in group {}; every rank "
      "gives the same rule",
      first.name, culprit, where, *at.in2, job_rank(0), *at.in1);
}

int highest_number(std::span<const std::string> texts, const std::string& name,
                   const std::function<int(int)>& job_rank) {
  int highest = 0;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const char* const end = texts[rank].data() + texts[rank].size();
    int number = -1;
    const auto read = std::from_chars(texts[rank].data(), end, number);
    if (read.ec != std::errc{} || read.ptr != end || number < 0) {
      throw ContractError{fmt::format(
          "split \"{}\": rank {} made another call; every rank makes the same collective calls in "
          "the same order",
          name, job_rank(static_cast<int>(rank)))};
    }
    highest = std::max(highest, number);
  }
  return highest;
}

}  // namespace tessera
