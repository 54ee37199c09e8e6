#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tessera::kernels {

/// An LRU cache: the values of up to `most` keys. A further key evicts the least recently used. A
/// reference is valid until its entry is evicted.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t most) noexcept : most_{most} {}

  /// The value of `key`, created by make() if it is missing.
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
