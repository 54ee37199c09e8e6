// A small transformer that learns the bytes of a text: trained by libtorch alone, then the same
// module class sharded over ranks. Neither the class nor its layers change.
//
//   train_char_model --text FILE [--strategy zero3] [--ranks 4] [--steps 50] [--batch 16]
//   mpirun -n 4 train_char_model --text FILE --strategy zero3

#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "adamw.hpp"
#include "arguments.hpp"
#include "beside.hpp"
#include "char_model.hpp"
#include "tessera/torch.hpp"
#include "text.hpp"

namespace {

constexpr CharModelSize kSize;

CharModel make_model() {
  return CharModel(kSize);
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& next) {
  return torch::cross_entropy_loss(scores.flatten(0, 1), next.flatten());
}

// [plain]
std::vector<double> train(const Text& text, int steps, int batch) {
  CharModel net = make_model();
  PlainAdamW optimizer{net->parameters(), 3e-3F};
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Text::Pieces pieces = text.pieces(step * batch, batch, kSize.length);
    optimizer.zero_grad();
    const torch::Tensor loss = loss_of(net(pieces.bytes), pieces.next);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}
// [/plain]

// [sharded]
std::vector<double> train(tessera::World& world, CharModel& net, tessera::Strategy strategy,
                          const Text& text, int steps, int batch) {
  auto model = tessera::torch::shard(net, world, {.model = {.strategy = strategy}});
  model.optimize_with(tessera::AdamW{.lr = 3e-3F});
  const int mine = batch / world.size();
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Text::Pieces pieces = text.pieces(step * batch + world.rank() * mine, mine, kSize.length);
    const torch::Tensor loss = loss_of(model(pieces.bytes), pieces.next);
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
    const Arguments arguments{
        argc, argv, {"--text", "--strategy", "--ranks", "--steps", "--batch"}};
    const auto strategy = tessera::parse_strategy(arguments.text("--strategy", "zero3"));
    const Text text{arguments.text("--text", "LICENSE")};
    const int ranks = arguments.number("--ranks", 4);
    const int steps = arguments.number("--steps", 50);
    const int batch = arguments.number("--batch", 16);
    torch::set_num_threads(1);  // as in a rank
    torch::manual_seed(1);

    const auto train_with = [&](tessera::Strategy chosen, int count) {
      return on_ranks(ranks, make_model, [&](tessera::World& world, CharModel& net) {
        return train(world, net, chosen, text, count, batch);
      });
    };
    const Run ddp = train_with(tessera::Strategy::ddp, 2);
    const Run run = train_with(strategy, steps);
    if (ddp.status != 0 || run.status != 0) { return 1; }
    if (tessera::launched_rank() != 0) { return 0; }
    torch::manual_seed(1);
    return print_beside(train(text, steps, batch), ddp, run, arguments.text("--strategy", "zero3"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_char_model: %s\n", error.what());
    return 1;
  }
}
