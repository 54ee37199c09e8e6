#include "support/gpt_run.hpp"

#include <utility>

#include "support/sample_documents.hpp"

namespace tessera::test {
namespace {

using Tokens = std::vector<std::int32_t>;

// Learnable tokens.
Tokens tokens_of(const nn::DecoderConfig& config, int step, int micro, int rank, int shift) {
  Tokens tokens;
  for (std::int64_t i = 0; i < kGPTRunBatch * config.seq; ++i) {
    const int from = shift + 17 * rank + 5 * step + 3 * micro;
    const std::int64_t at = i + from;
    tokens.push_back(static_cast<std::int32_t>((at * 7 + at / 3) % config.vocab));
  }
  return tokens;
}

void train_rank(const GPTRun& run, World& world, ToyOutcome& outcome) {
  auto gpt = shard(nn::Decoder{run.config, run.gpt}, world, run.options);
  gpt.materialize(/*seed=*/3);
  gpt.optimize_with(AdamW{.lr = run.lr}, {.clip_norm = 1.0F});
  for (int step = 0; step < run.steps; ++step) {
    std::vector<Tokens> alive;  // until the stream has used them
    const auto passes = [&] {
      for (int micro = 0; micro < run.options.accumulate; ++micro) {
        const std::int64_t sample =
            kGPTRunBatch * (world.rank() + std::int64_t{world.size()} * (micro + 7 * step));
        Tokens targets = tokens_of(run.config, step, micro, world.rank(), 1);
        alive.push_back(tokens_of(run.config, step, micro, world.rank(), 0));
        alive.push_back(documents_of(run.gpt, targets, run.config.seq, sample));
        alive.push_back(std::move(targets));
        gpt.forward_backward(
            nn::MicroBatch{alive[alive.size() - 3], alive.back(), alive[alive.size() - 2]});
      }
    };
    if (run.first_graph_step >= 0 && step >= run.first_graph_step) {
      world.run_as_graph([&] {
        passes();
        gpt.step();
      });
    } else {
      passes();
      if (step == 0) {
        auto gradients = exported(gpt.model(), StateTensor::gradients);
        if (world.rank() == 0) { outcome.first_gradients = std::move(gradients); }
      }
      gpt.step();
    }
    const StepReport report = gpt.report();
    if (world.rank() != 0) { continue; }
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.grad_norm);
    outcome.clipped = outcome.clipped || report.clip_coefficient < 1.0F;
  }
  auto parameters = exported(gpt.model(), StateTensor::parameters);
  if (world.rank() == 0) { outcome.parameters = std::move(parameters); }
}

}  // namespace

ToyOutcome train_gpt(const GPTRun& run) {
  return train_gpt(run, run_ranks);
}

ToyOutcome train_gpt(const GPTRun& run, const StartRanks& start) {
  ToyOutcome outcome;
  start(run.ranks, [&](World& world) { train_rank(run, world, outcome); }, run.world);
  return outcome;
}

}  // namespace tessera::test
