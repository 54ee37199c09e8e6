#include "tools/measure/timing.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace tessera::bench {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Series::least() const {
  return *std::min_element(seconds.begin(), seconds.end());
}

double Series::median() const {
  return median_of(seconds);
}

double median_ratio(const Series& a, const Series& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.seconds.size(); ++i) {
    ratios.push_back(a.seconds[i] / b.seconds[i]);
  }
  return median_of(std::move(ratios));
}

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

double cpu_now() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

double seconds_since(double begin) {
  return now() - begin;
}

std::vector<Series> in_turn(int rounds, std::span<const std::function<void()>> cases) {
  for (const auto& run : cases) { run(); }
  std::vector<Series> all(cases.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double begin = now();
      cases[i]();
      all[i].seconds.push_back(seconds_since(begin));
    }
  }
  return all;
}

}  // namespace tessera::bench
