// A lesson, not a feature: PipeDream-2BW (Narayanan et al. 2021). A synchronous pipeline drains at
// the end of each step, since the next step needs the new weights. Here it never drains: each rank
// has two versions of its weights, and a step computes with the weights that the step before the
// last produced. Its gradients are therefore one update old:
//
//   synchronous   W(t+1) = W(t) - rate * gradient at W(t)
//   two weights   W(t+1) = W(t) - rate * gradient at W(t-1)
//
// Trains a small network both ways, and by the second rule on one rank without a pipeline. Exit
// status 1 unless the pipeline's losses and weights equal the latter's to the bit, and both ways
// learn.
// docs/lessons/two_weights.md
//
//   two_weights [number of ranks = 4, from 1 to 8]

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "argument.hpp"
#include "tessera/pipeline/pipeline.hpp"
#include "tessera/pipeline/timeline.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/run.hpp"

namespace {

namespace pipeline = tessera::pipeline;
using Values = std::vector<float>;

constexpr int kMicroBatches = 8;  // per step; at least the number of ranks
constexpr int kSteps = 60;
constexpr std::size_t kRows = 4;  // per micro-batch
constexpr std::size_t kWidth = 6;
constexpr std::size_t kElems = kRows * kWidth;
constexpr float kRate = 0.1F;

float number(std::size_t i) {
  return std::sin(static_cast<float>(i * i + 1));
}

Values numbers(std::size_t first, std::size_t count) {
  Values all(count);
  for (std::size_t i = 0; i < count; ++i) { all[i] = number(first + i); }
  return all;
}

Values first_weights(int stage) {
  return numbers(static_cast<std::size_t>(stage) * 1000, kWidth * kWidth);
}

// The weights that the network is to learn; its targets come from the same network with these
// weights.
Values teacher_weights(int stage) {
  Values weights = first_weights(stage);
  for (std::size_t i = 0; i < weights.size(); ++i) { weights[i] += 0.3F * number(7 * i + 3); }
  return weights;
}

// y = tanh(x W), a stage of the network.
void forward(const Values& weights, const float* x, float* y) {
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kWidth; ++c) {
      float sum = 0;
      for (std::size_t k = 0; k < kWidth; ++k) {
        sum += x[r * kWidth + k] * weights[k * kWidth + c];
      }
      y[r * kWidth + c] = std::tanh(sum);
    }
  }
}

// Adds the gradients of the weights; `dx` may be null.
void backward(const Values& weights, const float* x, const float* y, const float* dy, float* dx,
              Values& gradient) {
  Values product(kElems);
  for (std::size_t i = 0; i < kElems; ++i) { product[i] = dy[i] * (1 - y[i] * y[i]); }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t k = 0; k < kWidth; ++k) {
      float sum = 0;
      for (std::size_t c = 0; c < kWidth; ++c) {
        const float of = product[r * kWidth + c];
        sum += of * weights[k * kWidth + c];
        gradient[k * kWidth + c] += x[r * kWidth + k] * of;
      }
      if (dx != nullptr) { dx[r * kWidth + k] = sum; }
    }
  }
}

// The same rows in each step.
Values rows(int micro_batch) {
  return numbers(50'000 + static_cast<std::size_t>(micro_batch % kMicroBatches) * kElems, kElems);
}

Values targets(int micro_batch, int stages) {
  Values from = rows(micro_batch);
  Values to(kElems);
  for (int stage = 0; stage < stages; ++stage) {
    forward(teacher_weights(stage), from.data(), to.data());
    from = to;
  }
  return to;
}

// The gradient of the mean square over a step's rows; adds the micro-batch's part of the mean to
// the loss.
Values loss_gradient(const Values& y, const Values& target, double& loss) {
  Values dy(kElems);
  for (std::size_t i = 0; i < kElems; ++i) {
    const float difference = y[i] - target[i];
    dy[i] = difference / static_cast<float>(kMicroBatches * kRows);
    loss += difference * difference / (2.0 * kMicroBatches * kRows);
  }
  return dy;
}

enum class Updates { flushed, two_weights };

// One stage's weights. Version t is the result of t updates, and replaces version t - 2.
class Weights {
 public:
  Weights(int stage, Updates updates) : updates_{updates} { versions_[0] = first_weights(stage); }

  // The weights that step `step` computes with.
  [[nodiscard]] const Values& of_step(int step) const {
    const int version = updates_ == Updates::flushed ? step : std::max(step - 1, 0);
    return versions_[static_cast<std::size_t>(version) % 2];
  }
  [[nodiscard]] Values& gradient() { return gradient_; }
  void update(int step) {
    const Values& old = versions_[static_cast<std::size_t>(step) % 2];
    Values& made = versions_[static_cast<std::size_t>(step + 1) % 2];
    made.resize(old.size());
    for (std::size_t i = 0; i < old.size(); ++i) { made[i] = old[i] - kRate * gradient_[i]; }
    gradient_.assign(old.size(), 0.0F);
  }
  [[nodiscard]] const Values& last() const { return versions_[kSteps % 2]; }

 private:
  Updates updates_;
  std::array<Values, 2> versions_;
  Values gradient_ = Values(kWidth * kWidth);
};

struct Training {
  std::array<double, kSteps> losses{};
  std::vector<Values> weights;  // by stage, at the end
};

// Runs one rank's stage, in steps of kMicroBatches, however many the schedule has.
void train_stage(tessera::World& world, const pipeline::Schedule& schedule, Updates updates,
                 Training& result) {
  const int stages = world.size();
  const int stage = world.rank();
  const tessera::Mesh mesh{world, {{"pipe", stages}}};
  pipeline::Pipeline pipe{mesh, schedule, {.elems = kElems}};
  Weights weights{stage, updates};
  std::vector<Values> outputs(static_cast<std::size_t>(pipe.most_in_flight()), Values(kElems));
  int first = 0;  // first micro-batch of a run
  const auto input_of = [&](const pipeline::Turn& turn, tessera::ConstView input) {
    return stage == 0 ? rows(turn.action.micro_batch)
                      : Values(static_cast<const float*>(input.data),
                               static_cast<const float*>(input.data) + kElems);
  };
  const pipeline::Passes passes{
      .forward =
          [&](const pipeline::Turn& turn, tessera::ConstView input, tessera::View output) {
            const int step = (first + turn.action.micro_batch) / kMicroBatches;
            Values& y = outputs[static_cast<std::size_t>(turn.slot)];
            forward(weights.of_step(step), input_of(turn, input).data(), y.data());
            if (stage + 1 < stages) {
              std::copy(y.begin(), y.end(), static_cast<float*>(output.data));
            }
          },
      .backward =
          [&](const pipeline::Turn& turn, tessera::ConstView input,
              tessera::ConstView output_gradient, tessera::View input_gradient) {
            const int micro_batch = first + turn.action.micro_batch;
            const int step = micro_batch / kMicroBatches;
            const Values& y = outputs[static_cast<std::size_t>(turn.slot)];
            Values dy;
            if (stage + 1 == stages) {
              dy = loss_gradient(y, targets(micro_batch, stages),
                                 result.losses[static_cast<std::size_t>(step)]);
            }
            backward(weights.of_step(step), input_of(turn, input).data(), y.data(),
                     dy.empty() ? static_cast<const float*>(output_gradient.data) : dy.data(),
                     static_cast<float*>(input_gradient.data), weights.gradient());
            if ((micro_batch + 1) % kMicroBatches == 0) { weights.update(step); }
          },
      .backward_weight = {}};
  for (; first < kSteps * kMicroBatches; first += schedule.micro_batches) { pipe.run(passes); }
  result.weights[static_cast<std::size_t>(stage)] = weights.last();
}

Training train(int ranks, const pipeline::Schedule& schedule, Updates updates) {
  Training result{.losses = {}, .weights = std::vector<Values>(static_cast<std::size_t>(ranks))};
  tessera::run_ranks(ranks,
                     [&](tessera::World& world) { train_stage(world, schedule, updates, result); });
  return result;
}

// The second rule without a pipeline: one micro-batch after the other.
Training train_alone(int stages) {
  Training result;
  std::vector<Weights> weights;
  for (int s = 0; s < stages; ++s) { weights.emplace_back(s, Updates::two_weights); }
  for (int micro_batch = 0; micro_batch < kSteps * kMicroBatches; ++micro_batch) {
    const int step = micro_batch / kMicroBatches;
    std::vector<Values> y{rows(micro_batch)};
    for (const Weights& stage : weights) {
      y.emplace_back(kElems);
      forward(stage.of_step(step), y[y.size() - 2].data(), y.back().data());
    }
    Values dy = loss_gradient(y.back(), targets(micro_batch, stages),
                              result.losses[static_cast<std::size_t>(step)]);
    for (std::size_t s = weights.size(); s-- > 0;) {
      Values dx(kElems);
      backward(weights[s].of_step(step), y[s].data(), y[s + 1].data(), dy.data(), dx.data(),
               weights[s].gradient());
      if ((micro_batch + 1) % kMicroBatches == 0) { weights[s].update(step); }
      dy = dx;
    }
  }
  for (const Weights& stage : weights) { result.weights.push_back(stage.last()); }
  return result;
}

bool compare(int ranks) {
  const auto flushed = pipeline::one_forward_one_backward(ranks, kMicroBatches);
  const auto endless = pipeline::one_forward_one_backward(ranks, kSteps * kMicroBatches);
  const Training synchronous = train(ranks, flushed, Updates::flushed);
  const Training asynchronous = train(ranks, endless, Updates::two_weights);
  const Training alone = train_alone(ranks);

  std::printf("%d ranks, steps of %d micro-batches\n\n%6s %14s %14s\n", ranks, kMicroBatches,
              "step", "synchronous", "two weights");
  for (std::size_t step = 0; step < kSteps; step = step < 4 ? step + 1 : step + 5) {
    std::printf("%6zu %14.6f %14.6f\n", step + 1, synchronous.losses[step],
                asynchronous.losses[step]);
  }
  const double flushed_length = play(flushed).length;
  const double endless_length = play(endless).length;
  std::printf("\n%-38s %11s %11s\n", "", "synchronous", "two weights");
  std::printf("%-38s %11.0f %11.0f\n", "units of time, all steps", kSteps * flushed_length,
              endless_length);
  std::printf("%-38s %11.3f %11.3f\n", "bubble", play(flushed).bubble(), play(endless).bubble());
  std::printf("%-38s %11d %11d\n", "versions of the weights on a rank", 1, 2);
  std::printf("%-38s %11d %11d\n", "updates that a gradient is old", 0, 1);

  const bool same = asynchronous.losses == alone.losses && asynchronous.weights == alone.weights;
  const bool learn = synchronous.losses.back() < synchronous.losses.front() / 2 &&
                     asynchronous.losses.back() < asynchronous.losses.front() / 2;
  std::printf("\n%s; %s\n",
              same ? "two weights: the bits of the rule without a pipeline"
                   : "two weights: NOT the rule without a pipeline",
              learn ? "both learn" : "NOT both learn");
  return same && learn;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compare(only_argument(argc, argv, 1, 8, 4)) ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "two_weights: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "two_weights: %s\n", error.what());
    return 1;
  }
}
