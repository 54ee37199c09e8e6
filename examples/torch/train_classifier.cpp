// A residual network that classifies four kinds of images: trained by libtorch alone, then the same
// module class sharded over ranks. Neither the class nor its layers change.
//
//   train_classifier [--strategy zero3] [--ranks 4] [--steps 50] [--batch 32]
//   mpirun -n 4 train_classifier --strategy zero3

#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <mutex>
#include <vector>

#include "adamw.hpp"
#include "arguments.hpp"
#include "beside.hpp"
#include "classifier.hpp"
#include "images.hpp"
#include "tessera/torch.hpp"

namespace {

// Ranks that are threads share libtorch's random number generator.
Classifier make_classifier() {
  static std::mutex generator;
  const std::lock_guard lock{generator};
  torch::manual_seed(1);
  return Classifier(Images::kClasses);
}

// [plain]
std::vector<double> train(int steps, int batch) {
  Classifier net = make_classifier();
  PlainAdamW optimizer{net->parameters(), 1e-3F};
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Images images = draw_images(step * batch, batch);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(net(images.pixels), images.labels);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}
// [/plain]

// [sharded]
std::vector<double> train(tessera::World& world, tessera::Strategy strategy, int steps, int batch) {
  Classifier net = make_classifier();
  auto model = tessera::torch::shard(net, world, {.model = {.strategy = strategy}});
  model.optimize_with(tessera::AdamW{.lr = 1e-3F});
  const int mine = batch / world.size();
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Images images = draw_images(step * batch + world.rank() * mine, mine);
    const torch::Tensor loss = torch::cross_entropy_loss(model(images.pixels), images.labels);
    model.backward(loss);
    model.step();
    losses.push_back(model.report().loss);
  }
  return losses;
}
// [/sharded]

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments{argc, argv, {"--strategy", "--ranks", "--steps", "--batch"}};
    const auto strategy = tessera::parse_strategy(arguments.text("--strategy", "zero3"));
    const int ranks = arguments.number("--ranks", 4);
    const int steps = arguments.number("--steps", 50);
    const int batch = arguments.number("--batch", 32);
    torch::set_num_threads(1);  // as in a rank

    const Run ddp = on_ranks(ranks, [&](tessera::World& world) {
      return train(world, tessera::Strategy::ddp, /*steps=*/2, batch);
    });
    const Run run = on_ranks(
        ranks, [&](tessera::World& world) { return train(world, strategy, steps, batch); });
    if (tessera::launched_rank() != 0) { return 0; }
    return print_beside(train(steps, batch), ddp, run, arguments.text("--strategy", "zero3"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_classifier: %s\n", error.what());
    return 1;
  }
}
