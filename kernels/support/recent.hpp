#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tessera::kernels {

/// What was made for the last keys, `most` at a time: one more makes the one go that was asked for
/// longest ago. References stay good until their own goes.
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(std::size_t most) noexcept : most_{most} {}

  /// That of `key`, made by make() if it is not there.
  template <class Make>
  [[nodiscard]] Value& get(const Key& key, Make&& make) {
    auto found = entries_.find(key);
    if (found == entries_.end()) {
      Value made = make();
      if (entries_.size() >= most_) { entries_.erase(oldest()); }
      found = entries_.emplace(key, Entry{std::move(made)}).first;
    }
    found->second.asked = ++asked_;
    return found->second.value;
  }

 private:
  struct Entry {
    Value value;
    std::uint64_t asked = 0;
  };

  [[nodiscard]] auto oldest() {
    return std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      return a.second.asked < b.second.asked;
    });
  }

  std::size_t most_;
  std::uint64_t asked_ = 0;
  std::map<Key, Entry> entries_;
};

}  // namespace tessera::kernels
