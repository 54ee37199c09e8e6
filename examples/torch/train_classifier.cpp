// A residual network that classifies four kinds of images: trained by libtorch alone, then the same
// module class sharded over ranks. Neither the class nor its layers change.
//
//   train_classifier [--strategy zero3] [--ranks 4] [--steps 50] [--batch 32]
//   mpirun -n 4 train_classifier --strategy zero3

#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "adamw.hpp"
#include "arguments.hpp"
#include "beside.hpp"
#include "classifier.hpp"
#include "images.hpp"
#include "tessera/torch.hpp"

namespace {

Classifier make_classifier() {
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
std::vector<double> train(tessera::World& world, Classifier& net, tessera::Strategy strategy,
                          int steps, int batch) {
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
    torch::manual_seed(1);

    const auto train_with = [&](tessera::Strategy chosen, int count) {
      return on_ranks(ranks, make_classifier, [&](tessera::World& world, Classifier& net) {
        return train(world, net, chosen, count, batch);
      });
    };
    const Run ddp = train_with(tessera::Strategy::ddp, 2);
    const Run run = train_with(strategy, steps);
    if (ddp.status != 0 || run.status != 0) { return 1; }
    if (tessera::launched_rank() != 0) { return 0; }
    torch::manual_seed(1);
    return print_beside(train(steps, batch), ddp, run, arguments.text("--strategy", "zero3"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_classifier: %s\n", error.what());
    return 1;
  }
}
