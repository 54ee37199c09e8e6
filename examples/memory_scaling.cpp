// The largest GPT that fits a budget under each strategy on 1, 2, 4 and 8 ranks: planned first, on
// a device that only counts, then trained, to check that it holds what was planned.
//
//   memory_scaling [MiB a rank]             for example: memory_scaling 12
//
// The ranks are threads of this process. Exit status: 0 if every rank of every run held what was
// planned, to the byte, 1 if not, 2 for bad usage.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"

namespace {

namespace nn = tessera::nn;
using tessera::Strategy;

constexpr std::int64_t kLargest = 64;
constexpr int kMostMiB =
    1024;  // more would take longer than seconds; the tessera command has no such limit

// Depth and width grow together.
nn::DecoderConfig member(std::int64_t index) {
  return {.layers = index, .hidden = 16 * index, .heads = index, .vocab = 256, .seq = 64};
}

// One rank's program, used for the plan and for the run.
std::size_t train(tessera::World& world, const nn::DecoderConfig& config, Strategy strategy) {
  const int group = strategy == Strategy::hybrid ? (world.size() + 1) / 2 : 0;  // two copies
  auto gpt =
      tessera::shard(nn::Decoder(config), world, {.strategy = strategy, .shard_group = group});
  gpt.materialize(/*seed=*/1);
  gpt.optimize_with(tessera::AdamW{.lr = 1e-3F}, {.clip_norm = 1.0F});
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < config.seq; ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * i + world.rank()) % config.vocab));
  }
  for (int step = 0; step < 2; ++step) {
    gpt.forward_backward(tokens, tokens);
    gpt.step();
  }
  (void)gpt.report();  // waits for the last step
  return world.memory().report().peak_bytes;
}

struct Planned {
  nn::DecoderConfig config;
  std::vector<std::size_t> peak_bytes;  // of each rank
};

Planned plan(const nn::DecoderConfig& config, Strategy strategy, int ranks) {
  Planned planned{config, {}};
  const auto body = [&](tessera::World& world) { (void)train(world, config, strategy); };
  for (const tessera::PlannedRank& kind : tessera::plan({.ranks = ranks}, body)) {
    planned.peak_bytes.insert(planned.peak_bytes.end(), static_cast<std::size_t>(kind.count),
                              kind.memory.peak_bytes);
  }
  return planned;
}

// The smallest fits in any budget that main takes.
Planned largest(Strategy strategy, int ranks, std::size_t budget) {
  Planned best = plan(member(1), strategy, ranks);
  for (std::int64_t index = 2; index <= kLargest; ++index) {
    Planned next = plan(member(index), strategy, ranks);
    for (const std::size_t peak : next.peak_bytes) {
      if (peak > budget) { return best; }
    }
    best = std::move(next);
  }
  return best;
}

std::vector<std::size_t> measure(const Planned& planned, Strategy strategy) {
  std::vector<std::size_t> peaks(planned.peak_bytes.size());
  tessera::run_ranks(static_cast<int>(peaks.size()), [&](tessera::World& world) {
    peaks[static_cast<std::size_t>(world.rank())] = train(world, planned.config, strategy);
  });
  return peaks;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view text = argc > 1 ? argv[1] : "12";
  int mib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mib);
  const bool number = error == std::errc{} && end == text.data() + text.size();
  if (argc > 2 || !number || mib < 1 || mib > kMostMiB) {
    std::fprintf(stderr, "usage: memory_scaling [MiB a rank, from 1 to %d; else 12]\n", kMostMiB);
    return 2;
  }
  try {
    int runs = 0;
    int as_planned = 0;
    std::printf("strategy  ranks  layers  hidden  parameters    planned   measured  (rank 0)\n");
    for (const Strategy strategy : tessera::all_strategies()) {
      for (const int ranks : {1, 2, 4, 8}) {
        const Planned best = largest(strategy, ranks, static_cast<std::size_t>(mib) << 20);
        const std::vector<std::size_t> measured = measure(best, strategy);
        ++runs;
        as_planned += measured == best.peak_bytes ? 1 : 0;
        std::printf("%-8s  %5d  %6ld  %6ld  %10ld  %9zu  %9zu\n",
                    std::string{tessera::to_string(strategy)}.c_str(), ranks,
                    static_cast<long>(best.config.layers), static_cast<long>(best.config.hidden),
                    static_cast<long>(best.config.parameter_elems()), best.peak_bytes[0],
                    measured[0]);
      }
    }
    std::printf("%d of %d runs held what was planned on every rank, to the byte\n", as_planned,
                runs);
    return as_planned == runs ? 0 : 1;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "memory_scaling: %s\n", failure.what());
    return 1;
  }
}
