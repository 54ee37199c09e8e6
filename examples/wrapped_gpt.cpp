// Trains a small GPT on a few lines of text, with its state distributed by a strategy:
//
//   wrapped_gpt [strategy] [ranks]          for example: wrapped_gpt zero3 4
//
// The ranks are threads of this process. Exit status: 0 if the loss fell, 1 if not, 2 for bad
// usage.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace {

namespace nn = tessera::nn;

constexpr std::string_view kText =
    "A mosaic is made of small tiles, and no tile shows the picture. Each is cut to its place, "
    "laid beside its neighbours, and forgotten; step back, and a face looks at you. A model is "
    "made of numbers in the same way, and no machine needs to hold them all. Each keeps its own "
    "part, lends it when it is asked for, and lets go of what it borrowed. Step back, and it "
    "learns to speak.\n";

constexpr int kSteps = 60;
constexpr std::int64_t kBatch = 4;  // sequences per rank

struct MicroBatch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;  // the inputs shifted by one
};

// Every sequence of every step starts at a different place in the text: no two ranks read the same.
MicroBatch read_text(int step, int rank, int ranks, std::int64_t seq) {
  MicroBatch batch;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const std::int64_t sample = (step * ranks + rank) * kBatch + b;
    const std::int64_t first = sample * 131 % (std::ssize(kText) - seq);
    for (std::int64_t t = first; t < first + seq; ++t) {
      batch.inputs.push_back(static_cast<unsigned char>(kText[static_cast<std::size_t>(t)]));
      batch.targets.push_back(static_cast<unsigned char>(kText[static_cast<std::size_t>(t) + 1]));
    }
  }
  return batch;
}

void print_memory(tessera::World& world) {
  const tessera::MemoryReport memory = world.memory().report();
  std::string line;
  for (std::size_t i = 0; i < tessera::kCategories; ++i) {
    const auto category = static_cast<tessera::Category>(i);
    const std::size_t bytes = memory.at_peak[category];
    if (bytes == 0) { continue; }
    line += std::string{tessera::to_string(category)} + " " + tessera::format_bytes(bytes) + ", ";
  }
  line += "peak " + tessera::format_bytes(memory.peak_bytes);
  const std::vector<std::string> lines = world.exchange(line);
  if (world.rank() != 0) { return; }
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    std::printf("rank %zu: %s\n", rank, lines[rank].c_str());
  }
}

// One rank's program. Returns whether the loss fell.
bool train(tessera::World& world, tessera::Strategy strategy) {
  const nn::DecoderConfig config{.layers = 2, .hidden = 48, .heads = 4, .vocab = 128, .seq = 32};

  auto gpt = tessera::shard(nn::Decoder(config), world, {.strategy = strategy});
  gpt.materialize(/*seed=*/1);
  gpt.optimize_with(tessera::AdamW{.lr = 3e-3F}, {.clip_norm = 1.0F});

  double first_loss = 0.0;
  double loss = 0.0;
  for (int step = 0; step < kSteps; ++step) {
    const MicroBatch batch = read_text(step, world.rank(), world.size(), config.seq);
    gpt.forward_backward(batch.inputs, batch.targets);
    gpt.step();

    loss = gpt.report().loss;
    if (step == 0) { first_loss = loss; }
    if (world.rank() == 0 && (step % 10 == 0 || step == kSteps - 1)) {
      std::printf("step %2d  loss %.4f\n", step + 1, loss);
    }
  }
  print_memory(world);
  return loss < 0.75 * first_loss;
}

int parse_ranks(std::string_view text) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc{} || end != text.data() + text.size() || ranks < 1) {
    throw tessera::ConfigError("ranks is \"" + std::string{text} +
                               "\": give a number from 1, for example: wrapped_gpt zero3 4");
  }
  return ranks;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
    const int ranks = argc > 2 ? parse_ranks(argv[2]) : 4;
    bool fell = false;
    tessera::run_ranks(ranks, [&](tessera::World& world) {
      const bool here = train(world, strategy);
      if (world.rank() == 0) { fell = here; }
    });
    if (!fell) { std::fprintf(stderr, "wrapped_gpt: the loss did not fall\n"); }
    return fell ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "wrapped_gpt: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wrapped_gpt: %s\n", error.what());
    return 1;
  }
}
