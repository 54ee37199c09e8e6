#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/table.hpp"
#include "tessera/base/math.hpp"
#include "tools/measure/arrays.hpp"
#include "tools/measure/loops.hpp"
#include "tools/measure/operations.hpp"
#include "world/host_pool.hpp"

namespace tessera::bench {
namespace {

/// The state of one optimizer, shared by all cases that use it.
struct State {
  explicit State(std::int64_t elems)
      : weight{noise(elems, 1)},
        m{floats(elems, 0.0F)},
        v{floats(elems, 0.0F)},
        gradient{noise(elems, 2)},
        still{floats(elems, 0.0F)},
        arrays{weight.get(), m.get(), v.get(), gradient.get(), elems} {
    scalars.updates = 10;
  }

  Floats weight, m, v, gradient, still;  // `still` is zero
  AdamWArrays arrays;
  kernels::StepScalars scalars;
  CallerStream stream;
  AdamW hyper;
};

/// The 16-bit halves of a state's weights.
struct Halves {
  explicit Halves(std::int64_t elems)
      : parameter(static_cast<std::size_t>(elems)), remainder(parameter.size()) {}

  std::vector<bfloat16> parameter;
  std::vector<std::uint16_t> remainder;
};

void update(const State& state, Stream stream) {
  kernels::cpu_table().adamw(kernels::alone({.master = state.arrays.weight,
                                             .gradient = state.arrays.gradient,
                                             .first = state.arrays.m,
                                             .second = state.arrays.v,
                                             .elems = state.arrays.elems},
                                            state.hyper),
                             &state.scalars, stream);
}

Case with_fp32_moments(const std::shared_ptr<State>& state, const char* name) {
  const auto count = static_cast<double>(state->arrays.elems);
  return {name, 28 * count, 16 * count, [=] { update(*state, state->stream.get()); }};
}

/// The arrays of a quantised moment.
struct Quantised {
  explicit Quantised(std::int64_t elems)
      : values(static_cast<std::size_t>(elems)),
        scales(static_cast<std::size_t>(ceil_div(elems, kMomentBlock))) {}
  kernels::QuantisedMoment get() { return {values.data(), scales.data()}; }

  std::vector<std::uint8_t> values;
  std::vector<float> scales;
};

/// `ours`, with the plain loop compiled for each instruction set as limits.
Contest beside_plain_loops(const std::shared_ptr<State>& state, const char* name,
                           std::function<void()> ours) {
  const auto count = static_cast<double>(state->arrays.elems);
  Contest contest{Work::bytes, {name, 28 * count, 16 * count, std::move(ours)}, {}};
  for (const Loops& loops : loop_variants()) {
    contest.limits.push_back({fmt::format("plain loop, {}", loops.name), 28 * count, 16 * count,
                              [=] { loops.plain_adamw(state->arrays, state->hyper, 10); }});
  }
  return contest;
}

}  // namespace

Contest offloaded_adamw(World& world, std::int64_t parameters) {
  static const std::string unit = "unit";
  const auto state = std::make_shared<State>(parameters);
  Contest contest = beside_plain_loops(state, "on the host stream", [&world, state] {
    world::HostPool{world}.compute([state](Stream cpu) { update(*state, cpu); }, "update", unit);
    world::HostPool{world}.compute_stream().wait();
  });
  const auto count = static_cast<double>(parameters);
  contest.limits.push_back(
      {"the kernel alone", 28 * count, 16 * count, [=] { update(*state, state->stream.get()); }});
  return contest;
}

Contest adamw_remainders(std::int64_t parameters) {
  const auto state = std::make_shared<State>(parameters);
  const auto halves = std::make_shared<Halves>(parameters);
  const auto count = static_cast<double>(parameters);
  const auto update = [=](float* master, std::uint16_t* remainder) {
    kernels::cpu_table().adamw(kernels::alone({.master = master,
                                               .parameter = halves->parameter.data(),
                                               .remainder = remainder,
                                               .gradient = state->arrays.gradient,
                                               .first = state->arrays.m,
                                               .second = state->arrays.v,
                                               .elems = parameters},
                                              state->hyper),
                               &state->scalars, state->stream.get());
  };
  return {
      Work::bytes,
      {"remainders", 28 * count, 16 * count, [=] { update(nullptr, halves->remainder.data()); }},
      {{"fp32 masters", 30 * count, 16 * count, [=] { update(state->arrays.weight, nullptr); }}}};
}

Contest adamw(std::int64_t parameters) {
  const auto state = std::make_shared<State>(parameters);
  const auto count = static_cast<double>(parameters);
  const AdamWArrays arrays = state->arrays;
  Contest contest =
      beside_plain_loops(state, "tessera", [=] { update(*state, state->stream.get()); });
  const Loops loops = loop_variants().front();
  // Both leave the state finite and v nonnegative.
  contest.limits.push_back(
      {"triad", 12 * count, 2 * count,
       [=] { loops.triad(arrays.weight, arrays.m, arrays.gradient, 0.5F, arrays.elems); }});
  contest.limits.push_back({"same traffic, additions alone", 28 * count, 3 * count, [=] {
                              AdamWArrays still = arrays;
                              still.gradient = state->still.get();
                              loops.adamw_traffic(still);
                            }});
  return contest;
}

Contest adamw_int8(std::int64_t parameters) {
  const auto state = std::make_shared<State>(parameters);
  const auto first = std::make_shared<Quantised>(parameters);
  const auto second = std::make_shared<Quantised>(parameters);
  const auto count = static_cast<double>(parameters);
  const auto update = [=] {
    kernels::cpu_table().adamw(kernels::alone({.master = state->arrays.weight,
                                               .gradient = state->arrays.gradient,
                                               .first_quantised = first->get(),
                                               .second_quantised = second->get(),
                                               .elems = state->arrays.elems},
                                              state->hyper),
                               &state->scalars, state->stream.get());
  };
  const double scales = 16.0 / static_cast<double>(kMomentBlock);
  return {Work::bytes,
          {"tessera, int8 moments", (16 + scales) * count, 16 * count, update},
          {with_fp32_moments(state, "tessera, fp32 moments")}};
}

}  // namespace tessera::bench
