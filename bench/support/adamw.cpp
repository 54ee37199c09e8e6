#include <fmt/format.h>

#include <memory>

#include "bench/support/arrays.hpp"
#include "bench/support/loops.hpp"
#include "bench/support/operations.hpp"
#include "kernels/table.hpp"

namespace tessera::bench {
namespace {

/// The state of one optimizer, shared by everything that is timed over it.
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

}  // namespace

Contest adamw(std::int64_t parameters) {
  const auto state = std::make_shared<State>(parameters);
  const auto count = static_cast<double>(parameters);
  const AdamWArrays arrays = state->arrays;
  Contest contest{Work::bytes,
                  {"tessera", 28 * count, 16 * count,
                   [=] {
                     kernels::cpu_table().adamw({.master = arrays.weight,
                                                 .gradient = arrays.gradient,
                                                 .first = arrays.m,
                                                 .second = arrays.v,
                                                 .elems = arrays.elems},
                                                state->hyper, &state->scalars, state->stream.get());
                   }},
                  {}};
  for (const Loops& loops : loop_variants()) {
    contest.limits.push_back({fmt::format("plain loop, {}", loops.name), 28 * count, 16 * count,
                              [=] { loops.plain_adamw(arrays, state->hyper, 10); }});
  }
  const Loops loops = loop_variants().front();
  // Both leave the state finite, and v without negative values.
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

}  // namespace tessera::bench
