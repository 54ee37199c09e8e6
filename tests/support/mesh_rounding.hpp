#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/mesh_run.hpp"
#include "support/rounding.hpp"

// A GPT on a mesh in bf16 against one rank in bf16, with the latter's distance from fp32 as
// measure.
namespace tessera::test {

/// Bound of the distance between a mesh's bf16 run and one rank's bf16 run, relative to the
/// distance between the latter and fp32.
///
/// Assumption: one rank's roundings to bf16 (unit roundoff 2^-8) make an error e = sum of s_i d_i,
/// with independent d_i of mean zero (Higham and Mary, 2019). The test measures its mean square
/// against fp32. A product cut by rows rounds its T parts and their fp32 sum instead of only the
/// sum. The parts' mean squares add up to about the sum's, so for every rounding the mesh has at
/// most twice one rank's mean square. All other roundings equal one rank's: sums over micro-batches
/// and data ranks are fp32, and a stage sends bf16 unchanged. The difference of the two runs has at
/// most the sum of both mean squares, 1 + 2. Each norm is one draw of `draws` numbers: their ratio
/// varies by 1 / sqrt(draws), and three times that is allowed.
inline double most_times_rounding(std::size_t draws) {
  return std::sqrt(3.0) * (1.0 + 3.0 / std::sqrt(static_cast<double>(draws)));
}

template <class Numbers>
double distance(const Numbers& a, const Numbers& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) { sum += std::pow(double{a[i]} - double{b[i]}, 2); }
  return std::sqrt(sum);
}

inline std::vector<double> losses_of(const MeshOutcome& outcome) {
  std::vector<double> losses = outcome.seen.losses;
  losses.push_back(outcome.evaluated[0]);
  return losses;
}

/// `expected` is one rank's run, `exact` the same in fp32. `draws` is the number of losses, which
/// vary randomly.
inline void expect_within_rounding(const MeshOutcome& outcome, const MeshOutcome& expected,
                                   const MeshOutcome& exact, std::size_t draws) {
  double squares = 0.0;
  ASSERT_EQ(outcome.seen.first_gradients.size(), expected.seen.first_gradients.size());
  for (const auto& [name, gradient] : outcome.seen.first_gradients) {
    const std::vector<float>& one = expected.seen.first_gradients.at(name);
    ASSERT_EQ(gradient.size(), one.size()) << name;
    EXPECT_LE(distance(gradient, one), most_times_rounding(gradient.size()) *
                                           distance(one, exact.seen.first_gradients.at(name)))
        << name;
    squares += std::pow(distance(gradient, std::vector<float>(gradient.size())), 2);
  }
  // The norm is a sum in fp64 of fp32 gradients, which the division by the ranks rounds once.
  EXPECT_NEAR(outcome.seen.norms[0], std::sqrt(squares),
              2 * unit_roundoff(DType::fp32) * std::sqrt(squares));
  EXPECT_LE(distance(losses_of(outcome), losses_of(expected)),
            most_times_rounding(draws) * distance(losses_of(expected), losses_of(exact)));
}

}  // namespace tessera::test
