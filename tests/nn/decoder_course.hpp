#pragma once

#include <vector>

#include "nn/nn_support.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

// A short training of a small GPT, compared with another that must be identical.
namespace tessera::test {

inline constexpr nn::DecoderConfig kCourseConfig{
    .layers = 3, .hidden = 20, .heads = 2, .vocab = 37, .seq = 11};

struct CourseOptions {
  nn::DecoderConfig config = kCourseConfig;
  nn::DecoderOptions gpt = {};
  ModelOptions model = {};
  WorldOptions world = {};
  int ranks = 1;
  int steps = 4;
  std::int64_t global_batch = 4;  ///< sequences per step
  float lr = 0.01F;
};

/// Bounds of what such a training in fp32 and another that adds in another order differ by.
inline GPTBounds course_bounds(const CourseOptions& options) {
  return between_runs(options.config, options.global_batch * options.config.seq);
}

struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  Tensors parameters;

  friend bool operator==(const Course&, const Course&) = default;
};

/// A rank's tokens of a step's global batch, distributed like DistributedSampler does; `shift` 1
/// gives the tokens that follow.
inline std::vector<std::int32_t> course_tokens(const CourseOptions& options, int step, int micro,
                                               int rank, std::size_t shift) {
  const auto seq = static_cast<std::size_t>(options.config.seq);
  const auto batch = static_cast<std::size_t>(options.global_batch) /
                     static_cast<std::size_t>(options.ranks * options.model.accumulate);
  std::vector<std::int32_t> tokens;
  const std::size_t first = static_cast<std::size_t>(micro * options.ranks + rank) * batch;
  for (std::size_t sample = first; sample < first + batch; ++sample) {
    for (std::size_t t = 0; t < seq; ++t) {
      const std::size_t at = t + shift + 17 * sample + 5 * static_cast<std::size_t>(step);
      tokens.push_back(static_cast<std::int32_t>((at * 7 + at / 3) %
                                                 static_cast<std::size_t>(options.config.vocab)));
    }
  }
  return tokens;
}

/// Runs one step's micro-batches and its update on a rank.
inline void course_step(Sharded<nn::Decoder>& gpt, World& world, const CourseOptions& options,
                        int step) {
  std::vector<std::vector<std::int32_t>> alive;  // until the stream has used them
  for (int micro = 0; micro < options.model.accumulate; ++micro) {
    alive.push_back(course_tokens(options, step, micro, world.rank(), 0));
    alive.push_back(course_tokens(options, step, micro, world.rank(), 1));
    gpt.forward_backward(alive[alive.size() - 2], alive.back());
  }
  gpt.step();
  static_cast<void>(gpt.report());
}

/// The losses and weights that rank 0 sees. `between` is called on every rank after each step.
inline Course train_course(const CourseOptions& options,
                           const std::function<void(Sharded<nn::Decoder>&)>& between = nullptr) {
  Course course;
  run_ranks(
      options.ranks,
      [&](World& world) {
        auto gpt = shard(nn::Decoder(options.config, options.gpt), world, options.model);
        gpt.materialize(3);
        gpt.optimize_with(AdamW{.lr = options.lr}, {.clip_norm = 1.0F});
        for (int step = 0; step < options.steps; ++step) {
          course_step(gpt, world, options, step);
          if (between) { between(gpt); }
          if (world.rank() != 0) { continue; }
          course.losses.push_back(gpt.report().loss);
          course.norms.push_back(gpt.report().grad_norm);
        }
        Tensors parameters = state_of(gpt.model(), StateTensor::parameters, nn::gpt2_weight_name);
        if (world.rank() == 0) { course.parameters = std::move(parameters); }
      },
      options.world);
  return course;
}

}  // namespace tessera::test
