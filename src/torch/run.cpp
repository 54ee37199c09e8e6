#include "tessera/torch/run.hpp"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"
#include "torch/initial_values.hpp"
#include "torch/rank_random.hpp"

namespace tessera::torch {

namespace {

constexpr const char* kRanks = "TESSERA_RANKS";

int ranks_of(const RunOptions& options) {
  if (options.ranks) { return *options.ranks; }
  const std::optional<std::string> text = environment(kRanks);
  if (!text) { return 1; }
  int ranks = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, ranks);
  if (error != std::errc{} || stop != end || ranks < 1) {
    throw ConfigError{std::string{"the environment variable "} + kRanks + " is \"" + shown(*text) +
                      "\", which is not a number of ranks; set it to 1 or more, or unset it"};
  }
  return ranks;
}

void run_on_ranks(const std::function<void(World&)>& body, const RunOptions& options) {
  if (launched_job(options.world.device)) { return tessera::run(body, options.world); }
  run_ranks(ranks_of(options), body, options.world);
}

// All processes find an error of the start, such as a wrong option. The first one prints it and
// ends, and the launcher ends the others while they wait. Later errors are thrown in one process.
void print_error(const char* text, bool started) {
  if (!started && launched_rank() != 0) { std::this_thread::sleep_for(std::chrono::seconds{3}); }
  std::fprintf(stderr, "error: %s\n", text);
}

}  // namespace

int run_program(const std::function<void(World&, const std::function<void()>& built)>& body,
                const RunOptions& options) {
  const ProgramRandom program = random_of_program();
  const std::uint64_t seed = options.seed.value_or(program.seed);
  std::atomic<bool> started = false;
  const auto on_rank = [&](World& world) {
    started = true;
    const at::Device device = device_of(world);
    const auto random =
        std::make_shared<RankRandom>(seed, device.is_cuda() ? std::optional{device} : std::nullopt);
    if (!options.seed) { random->go_on_from(program); }
    const DrawsFrom rank{random};
    try {
      body(world, [&] {
        const std::uint64_t own = seed_of_rank(seed, world.rank(), options.random);
        if (own != seed) { random->seed(own); }
      });
    } catch (const std::out_of_range& error) {  // its text names neither place nor cause
      throw std::out_of_range{std::string{error.what()} +
                              " (std::out_of_range, thrown by the program's own code: an index "
                              "beyond the end, such as a rank's part of a short last batch)"};
    }
  };
  try {
    run_on_ranks(on_rank, options);
    return 0;
  } catch (const std::exception& error) {
    print_error(error.what(), started);
    return 1;
  }
}

}  // namespace tessera::torch
