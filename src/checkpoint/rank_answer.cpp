#include "checkpoint/rank_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "tessera/base/shown.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::checkpoint {
namespace {

constexpr std::size_t kHashDigits = 16;

std::uint64_t hash_of(std::uint64_t before, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), before);
}

std::uint64_t hash_of_layout(std::uint64_t hash, const CheckpointLayout& layout) {
  for (const CheckpointFile& file : layout.files()) {
    hash = hash_of(hash_of(hash, fmt::format("{} {}", file.name, file.bytes)), file.header);
  }
  for (const CheckpointLayout::Index& index : layout.indices()) {
    hash = hash_of(hash_of(hash, index.name), index.text);
  }
  return hash;
}

std::uint64_t hash_at(std::string_view text, std::size_t number) {
  const std::string_view digits = text.substr(1 + number * kHashDigits, kHashDigits);
  std::uint64_t hash = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  return hash;
}

std::string shown_value(const SavedValues& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "missing" : fmt::format("'{}'", shown(found->second));
}

/// The first name whose value differs; empty if none does.
std::string differing_name(const SavedValues& one, const SavedValues& other) {
  std::set<std::string> names;
  for (const SavedValues* const values : {&one, &other}) {
    for (const auto& [name, value] : *values) { names.insert(name); }
  }
  const auto differs = [&](const std::string& name) {
    const auto a = one.find(name);
    const auto b = other.find(name);
    return a == one.end() || b == other.end() || a->second != b->second;
  };
  const auto found = std::ranges::find_if(names, differs);
  return found == names.end() ? std::string{} : *found;
}

}  // namespace

std::string RankAnswer::text() const {
  return fmt::format("{}{:016x}{:016x}{:016x}{}", finds ? '1' : '0', balance, files, values,
                     machine);
}

std::vector<RankAnswer> answers_in(const std::vector<std::string>& texts) {
  std::vector<RankAnswer> answers;
  for (const std::string& text : texts) {
    answers.push_back({.finds = text.front() == '1',
                       .balance = hash_at(text, 0),
                       .files = hash_at(text, 1),
                       .values = hash_at(text, 2),
                       .machine = text.substr(1 + 3 * kHashDigits)});
  }
  return answers;
}

std::uint64_t hash_of_files(const CheckpointLayout& state, const CheckpointLayout& extras) {
  return hash_of_layout(hash_of_layout(0, state), extras);
}

std::uint64_t hash_of_values(const SavedValues& values) {
  return hash_of(0, text_of_values(values));
}

std::string text_of_values(const SavedValues& values) {
  return nlohmann::json(values).dump();
}

std::string difference_in_values(const std::vector<std::string>& texts) {
  const auto first = nlohmann::json::parse(texts.front()).get<SavedValues>();
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) { continue; }
    const auto other = nlohmann::json::parse(texts[rank]).get<SavedValues>();
    const std::string name = differing_name(first, other);
    return fmt::format("the value '{}' is {} on rank 0, but {} on rank {}", shown(name),
                       shown_value(first, name), shown_value(other, name), rank);
  }
  return {};
}

}  // namespace tessera::checkpoint
