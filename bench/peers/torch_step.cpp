// Steps of the GPT of docs/benchmarks/torch.md as a libtorch module: fp32, AdamW, one thread per
// rank. bench/peers/pytorch_gpt.py does the same in PyTorch.
//
//   torch_step alone | dp | ddp | zero1 | zero2 | zero3 [steps = 10] [ranks = 2]
//   mpirun -n 2 torch_step zero3 10
//
// Prints one JSON object with the seconds of each timed step on rank 0 (from the moment all ranks
// have met to the moment the last has finished), and the processor seconds of its process.

#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "examples/torch/char_model.hpp"
#include "tessera/torch.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace {

constexpr CharModelSize kSize{
    .layers = 4, .hidden = 256, .heads = 4, .length = 128, .vocabulary = 1024};
constexpr int kBatch = 8;  // per rank
constexpr int kUntimed = 3;

// Ranks that are threads share libtorch's random number generator.
CharModel make_model(torch::Tensor& tokens, int rank) {
  static std::mutex generator;
  const std::lock_guard lock{generator};
  torch::manual_seed(1 + rank);
  tokens = torch::randint(0, kSize.vocabulary, {2, kBatch, kSize.length}, torch::kLong);
  return CharModel(kSize);
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& next) {
  return torch::cross_entropy_loss(scores.flatten(0, 1), next.flatten());
}

struct Times {
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;
};

Times time_steps(int steps, const std::function<void()>& meet, const std::function<void()>& step) {
  using Clock = std::chrono::steady_clock;
  Times times;
  for (int i = 0; i < kUntimed + steps; ++i) {
    meet();
    const auto begin = Clock::now();
    const std::clock_t cpu_begin = std::clock();
    step();
    meet();
    if (i < kUntimed) { continue; }
    times.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    times.cpu_seconds.push_back(static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC);
  }
  return times;
}

Times time_alone(int steps) {
  at::set_num_threads(1);
  torch::Tensor tokens;
  CharModel net = make_model(tokens, 0);
  torch::optim::AdamW optimizer{
      net->parameters(), torch::optim::AdamWOptions{3e-4}.betas({0.9, 0.95}).weight_decay(0.1)};
  return time_steps(
      steps, [] {},
      [&] {
        for (torch::Tensor& parameter : net->parameters()) { parameter.mutable_grad().reset(); }
        loss_of(net(tokens[0]), tokens[1]).backward();
        optimizer.step();
      });
}

Times time_sharded(tessera::World& world, tessera::Strategy strategy, int steps) {
  torch::Tensor tokens;
  CharModel net = make_model(tokens, world.rank());
  auto model = tessera::torch::shard(net, world, {.model = {.strategy = strategy}});
  model.optimize_with(tessera::AdamW{});
  return time_steps(
      steps, [&] { world.barrier(); },
      [&] {
        model.backward(loss_of(model(tokens[0]), tokens[1]));
        model.step();
        (void)model.report();  // the step has ended
      });
}

void print(const std::string& name, const Times& times) {
  const auto list = [](const std::vector<double>& values) {
    std::string text;
    for (const double value : values) {
      text += (text.empty() ? "" : ", ") + std::to_string(value);
    }
    return "[" + text + "]";
  };
  std::printf("{\"name\": \"%s\", \"seconds\": %s, \"cpu_seconds\": %s}\n", name.c_str(),
              list(times.seconds).c_str(), list(times.cpu_seconds).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string mode = argc > 1 ? argv[1] : "zero3";
    const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
    const int ranks = argc > 3 ? std::atoi(argv[3]) : 2;
    if (mode == "alone") {
      print("libtorch alone", time_alone(steps));
      return 0;
    }
    const auto strategy = tessera::parse_strategy(mode);
    const auto body = [&](tessera::World& world) {
      const Times times = time_sharded(world, strategy, steps);
      if (world.rank() != 0) { return; }
      const std::string kind = tessera::launched_job() ? "processes" : "threads";
      print("tessera " + mode + ", " + std::to_string(world.size()) + " " + kind, times);
    };
    if (tessera::launched_job()) {
      tessera::run(body);
    } else {
      tessera::run_ranks(ranks, body);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_step: %s\n", error.what());
    return 1;
  }
}
