#include "kernels/support/lru_cache.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace tessera::kernels::lru_cache_test {
namespace {

TEST(LruCache, KeepsTheMostRecentlyUsed) {
  LruCache<int, int> cache{3};
  int made = 0;
  const auto get = [&](int key) {
    return cache.get(key, [&] {
      ++made;
      return 10 * key;
    });
  };
  for (const int key : {1, 2, 3, 1}) { EXPECT_EQ(get(key), 10 * key); }
  EXPECT_EQ(made, 3);
  EXPECT_EQ(get(4), 40);  // evicts 2
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(get(3), 30);
  EXPECT_EQ(made, 4);
  EXPECT_EQ(get(2), 20);  // evicts 4
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(get(3), 30);
  EXPECT_EQ(made, 5);
}

TEST(LruCache, AFailedEntryTakesNoPlace) {
  LruCache<int, std::unique_ptr<int>> cache{1};
  const int& first = *cache.get(1, [] { return std::make_unique<int>(7); });
  EXPECT_THROW((void)cache.get(2, []() -> std::unique_ptr<int> { throw std::runtime_error{"no"}; }),
               std::runtime_error);
  EXPECT_EQ(&first, cache.get(1, [] { return nullptr; }).get());
}

}  // namespace
}  // namespace tessera::kernels::lru_cache_test
