#include "comm/rank_split.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "comm/control/control_text.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

RankSplit decode(const std::string& code, std::size_t ranks) {
  const std::size_t bytes = ranks * sizeof(std::int32_t);
  if (code.size() < bytes) {
    throw CommError{"a rank sent no groups for a split; start the same program on all ranks"};
  }
  RankSplit split{.groups = std::vector<std::int32_t>(ranks), .name = code.substr(bytes)};
  std::memcpy(split.groups.data(), code.data(), bytes);
  return split;
}

}  // namespace

RankSplit split_ranks(const GroupOf& group_of, int ranks, const std::string& name,
                      const NameOfRank& name_of) {
  RankSplit split{.groups = {}, .name = name};
  split.groups.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const int group = group_of(rank);
    if (group < 0) {
      throw ContractError{fmt::format("split \"{}\": {} is in group {}; groups must be 0 or more",
                                      name, name_of(rank), group)};
    }
    split.groups.push_back(group);
  }
  return split;
}

std::string encode(const RankSplit& split) {
  const std::size_t bytes = split.groups.size() * sizeof(std::int32_t);
  std::string code(bytes, '\0');
  std::memcpy(code.data(), split.groups.data(), bytes);
  return code += split.name;
}

// Without the bytes: a plan splits the ranks of a large job thousands of times.
std::uint64_t hash_of(const RankSplit& split) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, split.groups.data(), split.groups.size() * sizeof(std::int32_t));
  XXH3_64bits_update(&state, split.name.data(), split.name.size());
  return XXH3_64bits_digest(&state);
}

std::string first_difference(std::span<const std::string> codes, const NameOfRank& name_of) {
  const auto odd = std::ranges::find_if(codes, [&](const auto& c) { return c != codes.front(); });
  TESSERA_ASSERT(odd != codes.end());
  const std::string culprit = name_of(static_cast<int>(odd - codes.begin()));
  const RankSplit first = decode(codes.front(), codes.size());
  const RankSplit other = decode(*odd, codes.size());
  if (first.name != other.name) {
    return fmt::format("{} splits off \"{}\" where {} splits off \"{}\"", culprit, other.name,
                       name_of(0), first.name);
  }
  const auto at = std::ranges::mismatch(first.groups, other.groups);
  const std::string where = name_of(static_cast<int>(at.in1 - first.groups.begin()));
  return fmt::format(
      "split \"{}\": {} puts {} in group {}, but {} puts it in group {}; pass the "
      "same rule on every rank",
      first.name, culprit, where, *at.in2, name_of(0), *at.in1);
}

int agree_on_highest(int number, const std::string& name, const ExchangeTexts& exchange,
                     const NameOfRank& name_of) {
  const std::vector<std::string> sealed =
      exchange(seal(TextCall::number, std::to_string(number), name));
  int highest = number;
  for (const std::string& text : unseal(sealed, name_of)) {
    int theirs = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, theirs);
    if (error != std::errc{} || stop != end) {
      throw CommError{
          "a rank sent no number for its communicator; start the same program on all ranks"};
    }
    highest = std::max(highest, theirs);
  }
  return highest;
}

}  // namespace tessera::comm
