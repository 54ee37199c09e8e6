// Four all-reduce algorithms, which leave the sum of all ranks' data on every rank. Each runs on 2
// ... N ranks, threads that receive from each other in rounds. The program counts the bytes through
// the busiest rank, steps and rounds and compares them with formulas; it measures the time, and
// computes the time on a network of links. Exit status 1 if a count or a sum is wrong.
// docs/lessons/allreduce_algorithms.md
//
//   allreduce_algorithms [largest number of ranks = 16, from 2 to 16]

#include "allreduce_algorithms.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "argument.hpp"
#include "tessera/tessera.hpp"
#include "tessera/world/peer_traffic.hpp"

namespace {

constexpr int kRepeats = 5;

struct Algorithm {
  const char* name;
  void (*run)(Ranks&, int);
  Cost (*formula)(int, std::size_t);
};
constexpr std::array<Algorithm, 4> kAlgorithms{{{"star", star, star_formula},
                                                {"tree", tree, tree_formula},
                                                {"all-to-all", all_to_all, all_to_all_formula},
                                                {"ring", ring, ring_formula}}};

struct Result {
  int ranks = 0;
  std::size_t bytes = 0;  // of each rank's data
  std::array<Cost, kAlgorithms.size()> costs;
  std::array<double, kAlgorithms.size() + 1> here_s{};  // the last: the library's all-reduce
  std::atomic<bool> right = true;
};

// Whole numbers, whose sums are exact in any order.
float value(int rank, std::size_t i) {
  return static_cast<float>(rank + static_cast<int>(i % 5));
}

bool is_sum(const std::vector<float>& data, int ranks) {
  const float of_ranks = static_cast<float>(ranks * (ranks - 1)) / 2;
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] != of_ranks + static_cast<float>(ranks) * value(0, i)) { return false; }
  }
  return true;
}

// Runs `all_reduce` some times on fresh data. Returns this rank's median time in seconds.
template <class AllReduce>
double time(tessera::World& world, Ranks& ranks, Result& result, const AllReduce& all_reduce) {
  std::vector<double> seconds;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<float>& mine = ranks.of(world.rank());
    for (std::size_t i = 0; i < mine.size(); ++i) { mine[i] = value(world.rank(), i); }
    world.barrier();
    if (world.rank() == 0) { ranks.reset(); }
    world.barrier();
    const auto begin = std::chrono::steady_clock::now();
    all_reduce();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (!is_sum(mine, world.size())) { result.right = false; }
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

void measure(tessera::World& world, Ranks& ranks, Result& result) {
  const int rank = world.rank();
  for (std::size_t a = 0; a < kAlgorithms.size(); ++a) {
    const double seconds = time(world, ranks, result, [&] { kAlgorithms[a].run(ranks, rank); });
    if (rank != 0) { continue; }
    result.here_s[a] = seconds;
    result.costs[a] = ranks.cost();
    const Cost formula = kAlgorithms[a].formula(result.ranks, result.bytes);
    const bool same = result.costs[a].bytes == formula.bytes &&
                      result.costs[a].steps == formula.steps &&
                      result.costs[a].rounds == formula.rounds;
    if (!same) { result.right = false; }
  }
}

// The library's all-reduce sends what all-to-all sends.
void measure_library(tessera::World& world, Ranks& ranks, Result& result) {
  std::vector<float>& mine = ranks.of(world.rank());
  const tessera::View data{mine.data(), static_cast<std::int64_t>(mine.size()),
                           tessera::DType::fp32};
  const tessera::Channel channel = world.reduce_channel();
  const double seconds = time(world, ranks, result, [&] {
    channel.communicator.submit(tessera::Batch{"sum"}.all_reduce(data), channel.stream);
    channel.stream.wait();
  });
  if (world.rank() == 0) { result.here_s.back() = seconds; }
  std::vector<std::size_t> expected(
      static_cast<std::size_t>(world.size()),
      kRepeats * 2 * result.bytes / static_cast<std::size_t>(world.size()));
  expected[static_cast<std::size_t>(world.rank())] = 0;
  if (tessera::peer_traffic(world) != expected) { result.right = false; }
}

// Takes about `elems` floats per rank, rounded so that pieces are whole, and so that the library's
// pieces are whole too.
void run(Result& result, int ranks, std::size_t elems) {
  const std::size_t multiple = 64 * static_cast<std::size_t>(ranks);
  Ranks memory{ranks, (elems + multiple - 1) / multiple * multiple};
  result.ranks = ranks;
  result.bytes = sizeof(float) * memory.of(0).size();
  tessera::WorldOptions options;
  options.trace = true;  // counts what the library sends
  tessera::run_ranks(
      ranks,
      [&](tessera::World& world) {
        measure(world, memory, result);
        measure_library(world, memory, result);
      },
      options);
}

void print_counts(const std::vector<Result>& results) {
  std::printf(
      "bytes sent and received by the busiest rank / bytes of its data; steps; rounds\n  N");
  for (const Algorithm& algorithm : kAlgorithms) { std::printf("  %18s", algorithm.name); }
  std::printf("  ring before tree");
  for (const Result& result : results) {
    std::printf("\n%3d", result.ranks);
    for (const Cost& cost : result.costs) {
      std::printf("  %8.3f %4d %4d",
                  static_cast<double>(cost.bytes) / static_cast<double>(result.bytes), cost.steps,
                  cost.rounds);
    }
    std::printf("  from %5.0f KiB", ring_wins_from(result.ranks, Link{}) / 1024);
  }
}

void print_times(const std::vector<Result>& results) {
  const Link link;
  std::printf(
      "\n\n%zu KiB a rank, rounded up to whole pieces; us on links of %.0f us and %.0f GB/s"
      " | us here, median of %d\n  N",
      results.front().bytes / 1024, link.latency_s * 1e6, link.bytes_per_s / 1e9, kRepeats);
  for (const Algorithm& algorithm : kAlgorithms) { std::printf(" %10s", algorithm.name); }
  std::printf(" |");
  for (const Algorithm& algorithm : kAlgorithms) { std::printf(" %10s", algorithm.name); }
  std::printf("   library");
  for (const Result& result : results) {
    std::printf("\n%3d", result.ranks);
    for (const Cost& cost : result.costs) { std::printf(" %10.1f", cost.link_s * 1e6); }
    std::printf(" |");
    for (const double seconds : result.here_s) { std::printf(" %10.1f", seconds * 1e6); }
  }
}

bool compare(int most) {
  bool right = true;
  for (const std::size_t elems : {std::size_t{1} << 10U, std::size_t{1} << 18U}) {
    std::vector<Result> results(static_cast<std::size_t>(most - 1));
    for (int n = 2; n <= most; ++n) {
      Result& result = results[static_cast<std::size_t>(n - 2)];
      run(result, n, elems);
      right = right && result.right;
    }
    if (elems == 1024) { print_counts(results); }
    print_times(results);
  }
  std::printf("\n\n%s\n",
              right ? "sums and counts: as the formulas say" : "sums or counts are WRONG");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compare(only_argument(argc, argv, 2, 16, 16)) ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "allreduce_algorithms: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allreduce_algorithms: %s\n", error.what());
    return 1;
  }
}
