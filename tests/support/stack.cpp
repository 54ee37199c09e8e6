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

constexpr std::int64_t kWidth = StackWeights::kWidth;
constexpr std::int64_t kRows = Stack::kBoundary.elems / kWidth;
constexpr std::size_t kBytes = sizeof(float) * kRows * kWidth;
constexpr std::int64_t kWeights = kWidth * kWidth;
constexpr std::int64_t kStride = 32;  // elements between items: whole cache lines

/// Values of both signs and many sizes, whose sums depend on their order.
std::vector<float> numbers(int which, std::int64_t elems) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < elems; ++i) {
    all.push_back(std::sin(static_cast<float>(1 + i * i + std::int64_t{100} * which)));
  }
  return all;
}

Buffer slots_of(World& world, int slots, const char* name) {
  const std::int64_t elems = kStride * slots;
  return world.allocate(Category::activations, sizeof(float) * static_cast<std::size_t>(elems),
                        name);
}

/// Whether every stage computes its weight gradients in the order of micro-batches.
bool in_order(const Schedule& schedule) {
  std::map<int, int> next;  // by stage
  for (const auto& actions : schedule.ranks) {
    for (const auto& [work, stage, m] : actions) {
      if (work != Work::backward && work != Work::backward_weight) { continue; }
      if (next[stage]++ != m) { return false; }
    }
  }
  return true;
}

}  // namespace

float* StackOutcome::add(const std::string& name, std::int64_t elems) {
  const std::lock_guard lock{mutex_};
  std::vector<float>& values = all_[name];
  values.resize(static_cast<std::size_t>(elems));
  return values.data();
}

void PlainWeights::with(const Turn& turn, const Use& use) {
  const auto [found, added] = stages_.try_emplace(turn.action.stage);
  Stage& stage = found->second;
  if (added) {
    const std::size_t bytes = sizeof(float) * kWeights;
    stage.weight = world_.allocate(Category::parameters, bytes, "weight");
    stage.gradient = world_.allocate(Category::gradients, bytes, "gradient");
    const std::vector<float> values = numbers(10 + turn.action.stage, kWeights);
    world_.device().copy_in(stage.weight.data(), values.data(), bytes, world_.compute_stream());
    world_.device().fill(stage.gradient.data(), 0, bytes, world_.compute_stream());
    world_.compute_stream().wait();
  }
  use({stage.weight.data(), DType::fp32}, {stage.gradient.data(), DType::fp32});
}

void PlainWeights::write_gradients(StackOutcome& outcome, int data) {
  world_.compute([&] {
    for (const auto& [number, stage] : stages_) {
      const std::string name = fmt::format("weight gradient {} of data {}", number, data);
      world_.device().copy_out(outcome.add(name, kWeights), stage.gradient.data(),
                               sizeof(float) * kWeights, world_.compute_stream());
    }
    world_.compute_stream().wait();
  });
}

Stack::Stack(World& world, const Schedule& schedule, StackWeights& weights, int slots, int data)
    : world_{world},
      weights_{weights},
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

View Stack::at_slot(const Buffer& buffer, int slot) const {
  return {buffer.floats() + kStride * slot, kBoundary.elems, kBoundary.dtype};
}

ConstView Stack::data_of(int micro_batch) const {
  return at_slot(inputs_, micro_batch);
}

pipeline::Passes Stack::passes(StackOutcome& outcome) {
  const auto forward_pass = [this, &outcome](const Turn& turn, ConstView input, View output) {
    forward(turn, input, output, outcome);
  };
  const auto backward_pass = [this, &outcome](const Turn& turn, ConstView input,
                                              ConstView output_gradient, View input_gradient) {
    backward(turn, input, output_gradient, input_gradient, outcome);
  };
  const auto weight_pass = [this](const Turn& turn, ConstView input) {
    weights_.with(turn, [&](ConstValues, Values gradient) { add_gradient(turn, input, gradient); });
  };
  return {.forward = forward_pass, .backward = backward_pass, .backward_weight = weight_pass};
}

void Stack::forward(const Turn& turn, ConstView input, View output, StackOutcome& outcome) {
  const auto [work, number, m] = turn.action;
  const bool last = number == stages_ - 1;
  if (number == 0) { input = data_of(m); }
  if (last) { output = at_slot(outputs_, turn.slot); }
  const View product = at_slot(products_, turn.slot);
  const Stream stream = world_.compute_stream();
  weights_.with(turn, [&](ConstValues weight, Values) {
    world_.compute([&] {
      kernels::matmul({.a = input.values(),
                       .b = weight,
                       .c = product.values(),
                       .m = kRows,
                       .n = kWidth,
                       .k = kWidth},
                      stream);
      kernels::gelu_forward(product.values(), output.values(), kBoundary.elems, stream);
    });
  });
  if (!last) { return; }
  world_.compute([&] {
    const std::string name = fmt::format("output {} of data {}", m, data_);
    world_.device().copy_out(outcome.add(name, kBoundary.elems), output.data, kBytes, stream);
  });
}

void Stack::backward(const Turn& turn, ConstView input, ConstView output_gradient,
                     View input_gradient, StackOutcome& outcome) {
  const auto [work, number, m] = turn.action;
  if (number == stages_ - 1) { output_gradient = at_slot(outputs_, turn.slot); }
  const View product = at_slot(products_, turn.slot);
  const View product_gradient = at_slot(product_gradients_, turn.slot);
  const Stream stream = world_.compute_stream();
  weights_.with(turn, [&](ConstValues weight, Values gradient) {
    world_.compute([&] {
      kernels::gelu_backward(product.values(), output_gradient.values(), product_gradient.values(),
                             kBoundary.elems, stream);
      if (number == 0) { return; }
      kernels::matmul({.a = product_gradient.values(),
                       .b = weight,
                       .c = input_gradient.values(),
                       .m = kRows,
                       .n = kWidth,
                       .k = kWidth,
                       .transpose_b = kernels::Transpose::yes},
                      stream);
    });
    if (work == Work::backward) { add_gradient(turn, input, gradient); }
  });
  if (number != 1) { return; }
  world_.compute([&] {
    const std::string name = fmt::format("gradient {} of data {}", m, data_);
    world_.device().copy_out(outcome.add(name, kBoundary.elems), input_gradient.data, kBytes,
                             stream);
  });
}

void Stack::add_gradient(const Turn& turn, ConstView input, Values gradient) {
  if (turn.action.stage == 0) { input = data_of(turn.action.micro_batch); }
  world_.compute([&] {
    kernels::matmul({.a = input.values(),
                     .b = at_slot(product_gradients_, turn.slot).values(),
                     .c = gradient,
                     .m = kWidth,
                     .n = kWidth,
                     .k = kRows,
                     .transpose_a = kernels::Transpose::yes,
                     .write = kernels::Write::add},
                    world_.compute_stream());
  });
}

StackAlone::StackAlone(World& world, const Schedule& schedule, StackWeights& weights, int data)
    : schedule_{schedule},
      stack_{world, schedule, weights, schedule.stages() * schedule.micro_batches, data},
      outputs_{slots_of(world, schedule.stages() * schedule.micro_batches, "outputs of stages")},
      gradients_{slots_of(world, schedule.stages() * schedule.micro_batches, "their gradients")} {}

void StackAlone::run(StackOutcome& outcome) {
  const int stages = schedule_.stages();
  const auto number = [&](int stage, int m) { return stage * schedule_.micro_batches + m; };
  const auto turn = [&](Work work, int stage, int m) {
    return Turn{{work, stage, m}, number(stage, m)};
  };
  const auto view = [&](const Buffer& of, int stage, int m) {
    if (stage < 0 || stage >= stages) { return View{}; }
    return View{of.floats() + kStride * number(stage, m), Stack::kBoundary.elems, DType::fp32};
  };
  const pipeline::Passes passes = stack_.passes(outcome);
  const bool whole = in_order(schedule_);
  for (int m = 0; m < schedule_.micro_batches; ++m) {
    for (int s = 0; s < stages; ++s) {
      passes.forward(turn(Work::forward, s, m), view(outputs_, s - 1, m), view(outputs_, s, m));
    }
    for (int s = stages - 1; s >= 0; --s) {
      const Work work = whole ? Work::backward : Work::backward_input;
      passes.backward(turn(work, s, m), view(outputs_, s - 1, m), view(gradients_, s + 1, m),
                      view(gradients_, s, m));
    }
  }
  if (whole) { return; }
  for (const auto& actions : schedule_.ranks) {
    for (const auto& [work, s, m] : actions) {
      if (work != Work::backward && work != Work::backward_weight) { continue; }
      passes.backward_weight(turn(Work::backward_weight, s, m), view(outputs_, s - 1, m));
    }
  }
}

void run_stack(const Mesh& mesh, const Schedule& schedule, int steps, StackOutcome& outcome) {
  World& world = mesh.world();
  const int data = mesh.along("replicate", "shard").index();
  pipeline::Pipeline pipeline{mesh, schedule, Stack::kBoundary};
  PlainWeights weights{world};
  Stack stack{world, schedule, weights, pipeline.most_in_flight(), data};
  const pipeline::Passes passes = stack.passes(outcome);
  for (int step = 0; step < steps; ++step) { pipeline.run(passes); }
  weights.write_gradients(outcome, data);
}

std::map<std::string, std::vector<float>> stack_on_one_rank(const Schedule& schedule, int steps,
                                                            DeviceKind device, int data_ranks) {
  StackOutcome outcome;
  WorldOptions options;
  options.device = device;
  const auto body = [&](World& world) {
    for (int data = 0; data < data_ranks; ++data) {
      PlainWeights weights{world};
      StackAlone alone{world, schedule, weights, data};
      for (int step = 0; step < steps; ++step) { alone.run(outcome); }
      weights.write_gradients(outcome, data);
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
