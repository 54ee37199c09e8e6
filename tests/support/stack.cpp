#include "support/stack.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/kernels/gelu.hpp"
#include "tessera/kernels/matmul.hpp"
#include "tessera/pipeline/timeline.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test {
namespace {

using pipeline::Action;
using pipeline::Schedule;
using pipeline::Turn;
using pipeline::Work;

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kWidth = 5;
constexpr std::size_t kBytes = sizeof(float) * kRows * kWidth;
constexpr std::int64_t kWeights = kWidth * kWidth;
constexpr std::int64_t kStride = 32;  // elements from one item to the next: whole cache lines
static_assert(Stack::kBoundary.elems == kRows * kWidth);

/// Numbers of both signs and many sizes, whose sums depend on their order.
std::vector<float> numbers(int which, std::int64_t elems) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < elems; ++i) {
    all.push_back(std::sin(static_cast<float>(1 + i * i + 100 * which)));
  }
  return all;
}

Buffer slots_of(World& world, int slots, const char* name) {
  const std::int64_t elems = kStride * slots;
  return world.allocate(Category::activations, sizeof(float) * static_cast<std::size_t>(elems),
                        name);
}

}  // namespace

float* StackOutcome::add(const std::string& name, std::int64_t elems) {
  const std::lock_guard lock{mutex_};
  std::vector<float>& values = all_[name];
  values.resize(static_cast<std::size_t>(elems));
  return values.data();
}

Stack::Stack(World& world, const Schedule& schedule, int slots, int data)
    : world_{world},
      stages_{schedule.stages()},
      data_{data},
      inputs_{slots_of(world, schedule.micro_batches, "inputs")},
      outputs_{slots_of(world, slots, "outputs")},
      products_{slots_of(world, slots, "products")},
      product_gradients_{slots_of(world, slots, "gradients of products")} {
  const std::vector<float> rows = numbers(data, kStride * schedule.micro_batches);
  world.device().copy_in(inputs_.data(), rows.data(), sizeof(float) * rows.size(),
                         world.compute_stream());
  world.compute_stream().wait();
}

Stack::~Stack() {
  world_.quiesce();
}

Stack::Stage& Stack::stage(int number) {
  const auto [found, added] = by_stage_.try_emplace(number);
  Stage& stage = found->second;
  if (added) {
    const std::size_t bytes = sizeof(float) * kWeights;
    stage.weight = world_.allocate(Category::parameters, bytes, "weight");
    stage.gradient = world_.allocate(Category::gradients, bytes, "gradient");
    const std::vector<float> values = numbers(10 + number, kWeights);
    world_.device().copy_in(stage.weight.data(), values.data(), bytes, world_.compute_stream());
    world_.device().fill(stage.gradient.data(), 0, bytes, world_.compute_stream());
    world_.compute_stream().wait();
  }
  return stage;
}

std::string Stack::name(const char* what, int number) const {
  return fmt::format("{} {} of data {}", what, number, data_);
}

View Stack::at_slot(const Buffer& buffer, int slot) const {
  return {buffer.floats() + kStride * slot, kBoundary.elems, kBoundary.dtype};
}

ConstView Stack::data_of(int micro_batch) const {
  return at_slot(inputs_, micro_batch);
}

pipeline::Passes Stack::passes(StackOutcome& outcome) {
  return {.forward = [this, &outcome](const Turn& turn, ConstView input,
                                      View output) { forward(turn, input, output, outcome); },
          .backward =
              [this, &outcome](const Turn& turn, ConstView input, ConstView output_gradient,
                               View input_gradient) {
                backward(turn, input, output_gradient, input_gradient, outcome);
              },
          .backward_weight = [this](const Turn& turn,
                                    ConstView input) { backward_weight(turn, input); }};
}

void Stack::forward(const Turn& turn, ConstView input, View output, StackOutcome& outcome) {
  const auto [work, number, m] = turn.action;
  const bool last = number == stages_ - 1;
  if (number == 0) { input = data_of(m); }
  if (last) { output = at_slot(outputs_, turn.slot); }
  const View product = at_slot(products_, turn.slot);
  const Stage& own = stage(number);
  world_.compute([&] {
    const Stream stream = world_.compute_stream();
    kernels::matmul({.a = input.values(),
                     .b = {own.weight.data(), DType::fp32},
                     .c = product.values(),
                     .m = kRows,
                     .n = kWidth,
                     .k = kWidth},
                    stream);
    kernels::gelu_forward(product.values(), output.values(), kBoundary.elems, stream);
    if (!last) { return; }
    world_.device().copy_out(outcome.add(name("output", m), kBoundary.elems), output.data, kBytes,
                             stream);
  });
}

void Stack::backward(const Turn& turn, ConstView input, ConstView output_gradient,
                     View input_gradient, StackOutcome& outcome) {
  const auto [work, number, m] = turn.action;
  if (number == stages_ - 1) { output_gradient = at_slot(outputs_, turn.slot); }
  const View product_gradient = at_slot(product_gradients_, turn.slot);
  const Stage& own = stage(number);
  world_.compute([&] {
    const Stream stream = world_.compute_stream();
    kernels::gelu_backward(at_slot(products_, turn.slot).values(), output_gradient.values(),
                           product_gradient.values(), kBoundary.elems, stream);
    if (number > 0) {
      kernels::matmul({.a = product_gradient.values(),
                       .b = {own.weight.data(), DType::fp32},
                       .c = input_gradient.values(),
                       .m = kRows,
                       .n = kWidth,
                       .k = kWidth,
                       .transpose_b = kernels::Transpose::yes},
                      stream);
      if (number > 1) { return; }
      world_.device().copy_out(outcome.add(name("gradient", m), kBoundary.elems),
                               input_gradient.data, kBytes, stream);
    }
  });
  if (work == Work::backward) { backward_weight(turn, input); }
}

void Stack::backward_weight(const Turn& turn, ConstView input) {
  const auto [work, number, m] = turn.action;
  if (number == 0) { input = data_of(m); }
  const Stage& own = stage(number);
  world_.compute([&] {
    kernels::matmul({.a = input.values(),
                     .b = at_slot(product_gradients_, turn.slot).values(),
                     .c = {own.gradient.data(), DType::fp32},
                     .m = kWidth,
                     .n = kWidth,
                     .k = kRows,
                     .transpose_a = kernels::Transpose::yes,
                     .write = kernels::Write::add},
                    world_.compute_stream());
  });
}

void Stack::write_gradients(StackOutcome& outcome) {
  world_.compute([&] {
    for (const auto& [number, stage] : by_stage_) {
      world_.device().copy_out(outcome.add(name("weight gradient", number), kWeights),
                               stage.gradient.data(), sizeof(float) * kWeights,
                               world_.compute_stream());
    }
    world_.compute_stream().wait();
  });
}

void run_stack(const Mesh& mesh, const Schedule& schedule, int steps, StackOutcome& outcome) {
  World& world = mesh.world();
  pipeline::Pipeline pipeline{mesh, schedule, Stack::kBoundary};
  Stack stack{world, schedule, pipeline.most_in_flight(), mesh.along("replicate", "shard").index()};
  const pipeline::Passes passes = stack.passes(outcome);
  for (int step = 0; step < steps; ++step) { pipeline.run(passes); }
  stack.write_gradients(outcome);
}

std::map<std::string, std::vector<float>> stack_on_one_rank(const Schedule& schedule, int steps,
                                                            DeviceKind device, int data_ranks) {
  StackOutcome outcome;
  const int micro_batches = schedule.micro_batches;
  const int stages = schedule.stages();
  WorldOptions options;
  options.device = device;
  const auto body = [&](World& world) {
    for (int data = 0; data < data_ranks; ++data) {
      Stack stack{world, schedule, stages * micro_batches, data};
      const Buffer outputs = slots_of(world, stages * micro_batches, "outputs of stages");
      const Buffer gradients = slots_of(world, stages * micro_batches, "their gradients");
      const auto view = [&](const Buffer& of, int stage, int m) {
        if (stage < 0 || stage >= stages) { return View{}; }
        return View{of.floats() + kStride * (stage * micro_batches + m), Stack::kBoundary.elems,
                    DType::fp32};
      };
      const pipeline::Passes passes = stack.passes(outcome);
      const auto turn = [&](Work work, int stage, int m) {
        return Turn{{work, stage, m}, stage * micro_batches + m};
      };
      for (int step = 0; step < steps; ++step) {
        for (int m = 0; m < micro_batches; ++m) {
          for (int s = 0; s < stages; ++s) {
            passes.forward(turn(Work::forward, s, m), view(outputs, s - 1, m), view(outputs, s, m));
          }
          for (int s = stages - 1; s >= 0; --s) {
            passes.backward(turn(Work::backward_input, s, m), view(outputs, s - 1, m),
                            view(gradients, s + 1, m), view(gradients, s, m));
          }
        }
        for (const auto& actions : schedule.ranks) {
          for (const auto& [work, s, m] : actions) {
            if (work != Work::backward && work != Work::backward_weight) { continue; }
            passes.backward_weight(turn(Work::backward_weight, s, m), view(outputs, s - 1, m));
          }
        }
      }
      stack.write_gradients(outcome);
    }
  };
  run_ranks(1, body, options);
  return outcome.all();
}

std::string text_of(const Schedule& schedule) {
  std::string text = schedule.name + "\n" + draw(play(schedule));
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) { text += to_string(action) + "; "; }
    text += "\n";
  }
  return text;
}

}  // namespace tessera::test
